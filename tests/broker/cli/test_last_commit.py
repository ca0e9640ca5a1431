"""`tidemark consume --cursor`: the last commit, when no answer to it comes."""

from typing import Any

import anyio
import pytest

from broker.cli import consuming
from broker.client.errors import DeadlineExceeded
from broker.client.read.scanner import BatchScanner


class Read:
    """A reader at its end, with something to commit to a server that says nothing."""

    async def step(self) -> Any:
        raise StopAsyncIteration

    async def commit(self, *, deadline_s: float) -> None:
        with anyio.move_on_after(deadline_s):
            await anyio.sleep_forever()
        raise DeadlineExceeded(f"cursor 'billing' was not stored within {deadline_s} s")


async def test_a_last_commit_without_an_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consuming, "COMMIT_AT_END_S", 0.2)
    reader: BatchScanner = Read()  # type: ignore[assignment]
    with pytest.raises(DeadlineExceeded):
        await consuming._read_and_commit(reader, None)  # type: ignore[arg-type]
