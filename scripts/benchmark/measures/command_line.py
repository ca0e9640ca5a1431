"""Measures `tidemark consume`: a process that writes to a pipe, from its first byte to its last."""

import os
import subprocess
import sys
import time
from functools import partial

import anyio.to_thread

from benchmark.measures.batches import VCHANNEL, Batches
from benchmark.results.figures import RATE

READ_BYTES = 1 << 20


class CommandLine:
    """Reads back what `append` wrote, as a program behind a pipe does."""

    def __init__(self, address: str, batches: Batches) -> None:
        self._address = address
        self._batches = batches

    async def consume(self, form: str, messages: int) -> dict[str, float]:
        """Write each message in this format; the start of the interpreter does not count."""
        start, held = await self._batches.held(messages)
        return await anyio.to_thread.run_sync(partial(self._consume, form, start, held))

    def _consume(self, form: str, start: int, messages: int) -> dict[str, float]:
        command = [sys.executable, "-m", "broker", "consume", VCHANNEL, "--from", str(start)]
        command += ["--limit", str(messages), "--format", form, "--server", self._address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines, started = 0, 0.0
            while chunk := os.read(process.stdout.fileno(), READ_BYTES):
                started = started or time.perf_counter()
                lines += chunk.count(b"\n")
            took_s = time.perf_counter() - started
        # A payload has line ends of its own.
        if process.returncode or lines < messages:
            raise RuntimeError(f"consume ended with {process.returncode} after {lines:,} lines")
        return {RATE: messages / took_s, "messages": messages}
