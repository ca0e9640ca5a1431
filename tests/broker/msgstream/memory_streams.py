"""Streams in memory, and messages with little in them."""

from collections.abc import Sequence
from typing import Any

from broker.msgstream import (
    DeleteMsg,
    InsertMsg,
    MemMsgStreamFactory,
    MsgPack,
    MsgStream,
    StreamOptions,
    TimeTickMsg,
    TsMsg,
    TtMsgStream,
)

NO_LINGER = StreamOptions(linger_s=0)


def insert(*rows: tuple[int, bytes], key: int = 0, timestamps: Sequence[int] = ()) -> InsertMsg:
    """Rows with ids; their timestamps are their ids, if none are given."""
    ids = [id for id, _ in rows]
    return InsertMsg.of_rows(
        [data for _, data in rows],
        row_ids=ids,
        timestamps=timestamps or ids,
        hash_keys=[key] * len(rows),
    )


def at(ts: int, name: str) -> InsertMsg:
    """One row with a timestamp and its name as data."""
    return insert((1, name.encode()), timestamps=[ts])


def name_of(msg: TsMsg) -> str:
    assert isinstance(msg, InsertMsg)
    return msg.rows[0].decode()


def names(pack: MsgPack | None) -> list[str]:
    assert pack is not None
    return [name_of(it) for it in pack.msgs]


def sender_options(**given: Any) -> StreamOptions:
    return StreamOptions(clock="sender", linger_s=0, **given)


async def producer(factory: MemMsgStreamFactory, *channels: str) -> MsgStream:
    stream = factory.new_msg_stream()
    await stream.as_producer(channels)
    return stream


async def send(factory: MemMsgStreamFactory, channel: str, *entries: InsertMsg | int) -> None:
    """Messages, and time ticks as integers, to one channel."""
    stream = await producer(factory, channel)
    msgs = [TimeTickMsg.at(it) if isinstance(it, int) else it for it in entries]
    await stream.broadcast(MsgPack(msgs))


async def consumer(
    factory: MemMsgStreamFactory, *channels: str, seek: Any = None, tt: bool = True
) -> TtMsgStream:
    stream = factory.new_tt_msg_stream() if tt else factory.new_msg_stream()
    await stream.as_consumer(channels, "readers")
    if seek is not None:
        await stream.seek(seek)
    await stream.start()
    return stream  # type: ignore[return-value]


__all__ = [
    "NO_LINGER",
    "DeleteMsg",
    "at",
    "consumer",
    "insert",
    "names",
    "producer",
    "send",
    "sender_options",
]
