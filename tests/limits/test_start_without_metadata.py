"""A start whose metadata can be read and not written, as on a full disk: it waits, and says so."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio

from tests.local_broker import local_broker

REFUSE = """CREATE TRIGGER refuse BEFORE UPDATE ON head
    BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"""
PATIENCE_S = 4.0
"""Longer than the coordinator is looked for when it is restarted."""


async def test_a_broker_waits_for_metadata_that_takes_no_writes(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1):
        pass
    with refused_writes(tmp_path / "meta.sqlite"), anyio.move_on_after(PATIENCE_S) as waiting:
        async with local_broker(tmp_path, pchannels=1):
            raise AssertionError("it serves, and cannot take a term")
    assert waiting.cancelled_caught
    async with local_broker(tmp_path, pchannels=1) as broker:
        assert broker.address


@contextmanager
def refused_writes(metadata: Path) -> Iterator[None]:
    with closing(sqlite3.connect(metadata, isolation_level=None)) as database:
        database.execute(REFUSE)
        yield
        database.execute("DROP TRIGGER refuse")
