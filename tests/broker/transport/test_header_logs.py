"""Tokens travel in headers, which hpack logs: of these no log of a process may have anything."""

import asyncio
import logging

import pytest

from broker.transport import open_call
from broker.transport.header_logs import LOGGERS, keep_headers_out
from tests.broker.transport.echo import CALL, serving

SECRET = "tm_t1_planted-secret-5e7c"


async def test_headers_are_in_no_log_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("hpack", *LOGGERS):
        caplog.set_level(logging.DEBUG, logger=name)
    metadata = {"authorization": f"Bearer {SECRET}"}
    async with (
        asyncio.timeout(60),
        serving() as (_, channel),
        open_call(channel, CALL, metadata, limit_bytes=100, stall_s=60.0) as stream,
    ):
        await stream.write_batch([b"x"])
        assert await stream.read_batch() == [b"x"]
    assert SECRET not in caplog.text


def test_what_else_hpack_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    keep_headers_out()
    keep_headers_out()
    logger = logging.getLogger(LOGGERS[0])
    assert len(logger.filters) == 1
    logger.warning("a warning")
    assert "a warning" in caplog.text
