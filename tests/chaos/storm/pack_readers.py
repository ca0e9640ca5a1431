"""Reads packs of a time tick stream during a storm; dies now and then, and continues at its end."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import anyio

from broker.client import Client, Cut, Received, TidemarkError
from broker.msgstream import MsgPosition, StreamOptions, TidemarkMsgStreamFactory, TtMsgStream
from broker.msgstream.backends.log_backend import BatchLot
from broker.msgstream.log_clock import LogPack

DIES_EVERY = 20
"""Packs of one stream, on average."""
AGAIN_S = 0.1
OPTIONS = StreamOptions(silent_s=3600, warn_s=3600)


@dataclass(frozen=True, slots=True)
class Packed:
    """The messages of a pack, as a batch has them. `after_tick`: where its reader had begun."""

    messages: Sequence[Received]
    after_tick: int


class PackReader:
    """See Source, of one vchannel, from its first message or a cut on."""

    def __init__(self, log: Client, vchannel: str, start: Any, seed: int) -> None:
        self._factory = TidemarkMsgStreamFactory(log, OPTIONS)
        self._vchannel = vchannel
        self._chance = random.Random(seed)
        self._stream: TtMsgStream | None = None
        self._next: Any = None
        self._after_tick = 0
        if isinstance(start, Cut):
            ends = {name: int(end) for name, end in start.ends.items()}
            self._next = {"tick": int(start.tick), "ends": ends}
            self._after_tick = int(start.tick)
        self.closed_tick = 0

    async def open(self) -> None:
        stream = self._factory.new_tt_msg_stream()
        await stream.as_consumer([self._vchannel], "storm")
        if self._next is not None:
            await stream.seek(self._next)
        await stream.start()
        self._stream = stream

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()
            self._stream = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Packed:
        pack = await self._next_pack()
        assert isinstance(pack, LogPack)
        self._next = [MsgPosition.parse(bytes(it)) for it in pack.end_positions]
        packed = Packed([it for part in pack._parts for it in _messages(part)], self._after_tick)
        if self._chance.random() < 1 / DIES_EVERY:
            await self.close()
            self._after_tick = pack.end_ts
        self.closed_tick = pack.end_ts
        return packed

    async def _next_pack(self) -> Any:
        """As a program does that keeps trying while no server answers."""
        while True:
            try:
                if self._stream is None:
                    await self.open()
                assert self._stream is not None
                return await self._stream.consume()
            except TidemarkError as error:
                if not error.retriable:
                    raise
                await anyio.sleep(AGAIN_S)


def _messages(part: Any) -> list[Received]:
    lot = part.body
    assert isinstance(lot, BatchLot)
    return lot._batch.messages[lot._first + part.first : lot._first + part.stop]
