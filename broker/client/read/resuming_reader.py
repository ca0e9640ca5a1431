"""Reads one vchannel or pchannel over as many streams as it takes, continuing after each.

What differs between the two kinds of streams (`subscription.py`: Milvus's Consume, single messages;
`batch_subscription.py`: Read, whole batches) is behind `ReadProtocol`. Back-pressure: nothing is
read from a stream while its last batches wait for the program, so memory is bounded by the flow
control of the stream.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol

import anyio

from broker.client.cluster.offsets import Offsets
from broker.client.errors import (
    BadTarget,
    NodeUnreachable,
    ProtocolBroken,
    ServerRefusal,
    TidemarkError,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.connection import Conversation
from broker.client.net.control_messages import consumer_metadata
from broker.client.net.network import Network
from broker.client.net.retry_rules import ends_reader, is_wrong_node, lacks_right
from broker.client.net.wait_report import Wait
from broker.client.read.deliveries import B, Deliveries
from broker.model.channel import ChannelOffsets
from broker.model.ids import PChannelName

SILENCE_S = 30.0
"""An idle server sends a time tick every 200 ms; a stream without any for so long is dead."""

WRITE_S = 5.0
OWNER = "a node that can be read from"

Held = Callable[[], Awaitable[ChannelOffsets | None]]
"""Asks what the pchannel holds; None when that could not be found out now."""


class ReadProtocol(Protocol[B]):
    """One kind of stream, and how far one reader has come."""

    @property
    def path(self) -> str: ...

    @property
    def pchannel(self) -> PChannelName: ...

    @property
    def channels(self) -> tuple[str, ...]:
        """The vchannels to read, or the pchannel for all of that."""
        ...

    @property
    def quiet_s(self) -> float:
        """A server that sends nothing for so long is reported."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether the read has an end."""
        ...

    @property
    def done(self) -> bool:
        """Whether that end was reached."""
        ...

    def accepts(self, first: bytes) -> bool:
        """Whether this first answer means that the server took the stream."""
        ...

    def request(self) -> bytes:
        """The framed request that begins where the last stream ended."""
        ...

    async def deliver(
        self,
        stream: Conversation,
        frames: list[bytes],
        deliveries: Deliveries[B],
        heard: Callable[[], None],
    ) -> None:
        """Deliver `frames` and what follows on the stream; return when `done`.

        Calls `heard` whenever the server sent something new and the program has taken it.
        """
        ...

    async def judge(self, error: ServerRefusal, held: Held) -> None:
        """Raise for a final refusal: OutOfRange where retention explains it, else `error`.

        Returns when another stream may succeed.
        """
        ...


class ResumingReader(Generic[B]):
    """Use once: `run` delivers until the end of a bounded read, or until it is cancelled."""

    def __init__(self, network: Network, offsets: Offsets, reads: ReadProtocol[B]) -> None:
        self._network = network
        self._offsets = offsets
        self._reads = reads
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._counted_s = 0.0
        """Silence is counted from here on."""
        self._silent_s = 0.0
        self._served = False
        self._location: Location | None = None
        self._wait: Wait | None = None

    @property
    def channels(self) -> tuple[str, ...]:
        return self._reads.channels

    async def run(self, deliveries: Deliveries[B]) -> None:
        """Deliver everything once and in order.

        Raises OutOfRange when retention removed messages before they were read, and final refusals
        of the server. All else is retried: without limit, but in a bounded read only until the
        server was silent for `silence_s`, over two attempts at least; then the error of the last
        one is raised. Raises NodeUnreachable when the first node cannot be reached at all.
        """
        self._counted_s = anyio.current_time()
        try:
            while not self._reads.done:
                await self._run_once(deliveries)
        finally:
            self._end_wait(succeeded=False)

    async def _run_once(self, deliveries: Deliveries[B]) -> None:
        """One stream, and the pause after it."""
        location, told_s = None, 0.0
        self._begin_wait()
        try:
            location = self._location = await self._network.assignments.locate(
                self._reads.pchannel, deadline_s=self._network.open_s
            )
            await self._read(location, deliveries)
        except (BadTarget, ProtocolBroken):
            raise
        except ServerRefusal as error:
            if location is not None and is_wrong_node(error.code):
                self._network.assignments.report(location.channel, error)
            if lacks_right(error.code):
                raise
            if ends_reader(error.code):
                await self._reads.judge(error, self._held)
            self._check_silence(error)
            told_s = error.retry_s
        except TidemarkError as error:
            # A reader that was served before waits: the channel may move on to another node.
            if isinstance(error, NodeUnreachable) and not self._served:
                raise
            self._check_silence(error)
        if not self._reads.done:
            await self._pause(location, told_s)

    async def _read(self, location: Location, deliveries: Deliveries[B]) -> None:
        """One stream, from its opening to its end."""
        connection = self._network.connection(location.address)
        metadata = consumer_metadata(location.channel, location.node)
        open_s, path = self._network.open_s, self._reads.path
        async with connection.converse(path, metadata, deadline_s=open_s) as stream:
            first, *frames = await stream.read(open_s)
            if not self._reads.accepts(first):
                raise ProtocolBroken(f"{connection.address}: unexpected first message on {path}")
            await stream.write(self._reads.request(), WRITE_S)
            self._served = True
            self._end_wait(succeeded=True)
            where = self._reads.pchannel, location.address
            with self._network.waits.silence_of(stream, *where, self._reads.quiet_s):
                await self._reads.deliver(stream, frames, deliveries, self._heard)

    def _heard(self) -> None:
        self._backoff = self._backoff.succeeded()
        self._counted_s, self._silent_s = anyio.current_time(), 0.0

    async def _held(self) -> ChannelOffsets | None:
        name = self._reads.pchannel
        try:
            return (await self._offsets.describe([name]))[name]
        except TidemarkError as error:
            if error.retriable:
                return None  # the next stream will be refused as well, which leads here again
            raise

    def _begin_wait(self, cause: str = "") -> None:
        if self._wait is None:
            self._wait = self._network.begin_wait(OWNER, self._reads.pchannel, self._location)
        self._wait.cause = cause or self._wait.cause

    def _end_wait(self, *, succeeded: bool) -> None:
        self._network.waits.end(self._wait, succeeded=succeeded)
        self._wait = None

    def _check_silence(self, error: TidemarkError) -> None:
        self._begin_wait(str(error))
        # No attempt counts for longer than it may be silent, nor is one alone enough: a program
        # that awaits nothing for a while stops this reader, but not the time.
        longest_s = min(self._network.open_s + SILENCE_S, self._network.silence_s)
        now_s = anyio.current_time()
        self._silent_s += min(now_s - self._counted_s, longest_s)
        self._counted_s = now_s
        silence_s = self._network.silence_s
        if self._reads.bounded and (self._silent_s > silence_s or not silence_s):
            raise error

    async def _pause(self, location: Location | None, told_s: float) -> None:
        # After every stream; only something new from the server resets it.
        self._backoff = self._backoff.failed()
        # A new owner ends the pause. Without a location there is none: `locate` has waited.
        if location is not None:
            delay_s = max(told_s, self._backoff.delay_s(self._network.spread.random()))
            await self._network.assignments.wait_change(location.channel, delay_s)
