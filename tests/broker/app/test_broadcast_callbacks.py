"""Callbacks of broadcasts that a setting names, and what is said of a name that is wrong."""

from pathlib import Path

import pytest

from broker.app.broadcast_callbacks import load_callbacks
from broker.app.process_errors import CannotStart
from broker.client import connect
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.message import MessageType
from tests.local_broker import local_broker

HERE = "tests.broker.app.test_broadcast_callbacks"
called: list[tuple[int, int]] = []


async def note(broadcast: Broadcast, outcome: Broadcasted) -> None:
    called.append((broadcast.type, outcome.id))


CALLBACKS = {MessageType.DROP_COLLECTION: note}
NO_MAPPING = [note]
NO_FUNCTION = {1: "note"}


async def test_a_callback_that_a_setting_names_is_called_before_the_broadcast_is_done(
    tmp_path: Path,
) -> None:
    async with (
        local_broker(tmp_path, pchannels=1, callbacks=f"{HERE}:CALLBACKS") as broker,
        connect(broker.address) as log,
    ):
        await log.collections.create("c", shards=1)
        done = await log.broadcast.append(["c"], b"x", type=MessageType.DROP_COLLECTION)
        other = await log.broadcast.append(["c"], b"x", type=MessageType.CREATE_DATABASE)
        assert called == [(MessageType.DROP_COLLECTION, done.id)]
        assert other.id > done.id


@pytest.mark.parametrize(
    "named", ["nowhere_at_all:X", HERE, f"{HERE}:MISSING", f"{HERE}:NO_MAPPING",
              f"{HERE}:NO_FUNCTION", ":X"],
)  # fmt: skip
def test_a_name_that_gives_no_callbacks_is_told_as_such(named: str) -> None:
    with pytest.raises(CannotStart, match="MODULE:NAME"):
        load_callbacks(named)


def test_without_a_name_there_are_none() -> None:
    assert load_callbacks("") == {}
