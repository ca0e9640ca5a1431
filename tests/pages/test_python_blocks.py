"""Every Python block of the pages runs as it stands, twice, against a broker of its own page.

A reader who tries a program again must not meet an error, nor other results.
"""

import ast
import asyncio
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pyarrow as pa
import pytest

import broker.client
from tests.local_broker import local_broker
from tests.pages.blocks import ADDRESS, ROOT, blocks, pages_with_blocks

BLOCK_S = 60.0
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("page", pages_with_blocks(), ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_blocks_of_a_page_run_one_after_the_other_and_again(
    page: Path, tmp_path: Path
) -> None:
    async with (
        local_broker(tmp_path / "data") as served,
        broker.client.connect(served.address) as log,
    ):
        for _again in range(2):
            names: dict[str, Any] = {"__name__": "page", "asyncio": asyncio, "pa": pa, "log": log}
            names |= {name: getattr(broker.client, name) for name in broker.client.__all__}
            for block in blocks(page):
                text = block.replace(ADDRESS, served.address)
                with anyio.fail_after(BLOCK_S):
                    await _run(text, str(page), names, tmp_path)


async def _run(text: str, page: str, names: dict[str, Any], folder: Path) -> None:
    """A whole program in a process of its own; a fragment among what stood before it."""
    # What blocks would block the broker, which runs on this loop.
    if "asyncio.run(" in text or "client.sync import" in text:
        await anyio.to_thread.run_sync(_run_program, text, folder)
        return
    running = eval(compile(text, page, "exec", flags=TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(running):
        await running


def _run_program(text: str, folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BLOCK_S, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
