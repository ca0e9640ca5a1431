"""Messages that a member of a group has on lease, and how it settles them."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import anyio

from broker.client.batch import MessageBatch
from broker.client.batch_mark import BatchMark
from broker.client.errors import BadCommit, LeaseLost, TidemarkError
from broker.client.groups.settle_parts import part_error, parts_of
from broker.client.groups.settle_request import SettleRequest
from broker.client.message import Received
from broker.core.groups.group_changes import SPANS_MAX
from broker.core.groups.key_lanes import WHOLE, lanes_of
from broker.model.groups.consumer_group import TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from schemas.generated.tidemark import v1

SETTLE_S = 15.0

Settle = Callable[[SettleRequest, float], Awaitable[None]]


@dataclass(slots=True)
class LeaseTerms:
    """`until_s`: on the clock of the event loop, as far as this member knows."""

    number: int
    span: TickSpan
    times: int
    seconds: float
    until_s: float
    alone: bool = False
    mode: GroupMode = GroupMode.SHARED


class LeasedBatch:
    """Messages of one vchannel for this member alone, until the lease is over.

        async for batch in member:
            for message in batch.messages:
                ...
            await batch.ack()

    What is neither acknowledged nor given back when the lease ends is delivered again, to any
    member. `deliveries`: how often these messages were delivered, with this time: 1 at first.
    `batches`: the same as they are stored, for Arrow rows.
    """

    def __init__(
        self, batches: Sequence[MessageBatch], vchannel: str, lease: LeaseTerms, settle: Settle
    ) -> None:
        self.batches = batches
        self.vchannel = vchannel
        self._lease = lease
        self._settle = settle
        self._settled_ticks: set[int] = set()
        self._asked_ticks: set[int] = set()
        """Named in a request before, whatever became of it; with the settled ones among them."""
        self._may_lack = False
        """Whether the server may have taken messages back of which this side was not told."""
        self._settled = anyio.Event()
        self._messages: list[Received] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def deliveries(self) -> int:
        """How often these messages were delivered, with this time."""
        return self._lease.times

    @property
    def alone(self) -> bool:
        """Whether it is one message, delivered for the last time before it is a dead letter."""
        return self._lease.alone

    @property
    def lease_s(self) -> float:
        """How long the lease lasts from now on; 0 when it is over."""
        return max(0.0, self._lease.until_s - anyio.current_time())

    @property
    def until_s(self) -> float:
        """When the lease is over, on the clock of the event loop."""
        return self._lease.until_s

    @property
    def messages(self) -> list[Received]:
        """Each message, in order."""
        if self._messages is None:
            self._messages = [message for batch in self.batches for message in batch.messages]
        return self._messages

    @property
    def payloads(self) -> list[bytes]:
        """The payload of each message."""
        return [payload for batch in self.batches for payload in batch.payloads]

    @property
    def plain_closed_tick(self) -> TimeTick:
        """Nothing: members share the messages, so none knows what the others have."""
        return TimeTick(0)

    @property
    def mark(self) -> BatchMark | None:
        """None: a group keeps its own positions."""
        return None

    async def ack(
        self, messages: Iterable[Received] | None = None, *, deadline_s: float = SETTLE_S
    ) -> None:
        """Acknowledge all messages that are left, or these: durable on return, delivered no more.

        Messages of one transaction are acknowledged together. Raises LeaseLost when the lease is
        over: they may be delivered again. OutcomeUnknown when the answer was lost, DeadlineExceeded
        when others of this member were answered so late that it was never sent. InvalidArgument
        for messages that were acknowledged before, BadCommit for those of another batch.

        More than 4,096 that do not lie next to each other go in several requests, also those of
        `nack` and `reject`. The error of one that fails says which are settled; no more are sent.
        """
        await self._send(self._request(messages, v1.Settlement.ACKNOWLEDGE), deadline_s)

    async def ack_in(
        self, txn_id: int, messages: Iterable[Received] | None, deadline_s: float
    ) -> None:
        """Have an open transaction of the vchannel acknowledge them; see `Txn.ack`."""
        request = self._request(messages, v1.Settlement.ACKNOWLEDGE)
        request.txn_id = txn_id
        await self._send(request, deadline_s)

    async def nack(
        self,
        messages: Iterable[Received] | None = None,
        *,
        delay_s: float = 0.0,
        deadline_s: float = SETTLE_S,
    ) -> None:
        """Have all messages that are left, or these, delivered again after `delay_s`."""
        request = self._request(messages, v1.Settlement.RETURN)
        request.delay_ms = round(delay_s * 1000)
        await self._send(request, deadline_s)

    async def reject(
        self,
        cause: str,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float = SETTLE_S,
    ) -> None:
        """Give all messages that are left, or these, to the dead letters, with this cause.

        Durable on return: they are delivered no more, and their copies follow. InvalidArgument
        for a group without `deliveries_max`.
        """
        request = self._request(messages, v1.Settlement.REJECT)
        request.cause = cause
        await self._send(request, deadline_s)

    async def begin(self, *, deadline_s: float = SETTLE_S) -> None:
        """Say that the program processes a batch that is `alone`; the member does so itself."""
        await self._settle(self._request(None, v1.Settlement.BEGIN), deadline_s)

    @property
    def settled(self) -> bool:
        """Whether nothing of it is left to settle, or the lease was found to be over."""
        return self._settled.is_set()

    async def over(self) -> None:
        """Return when nothing of it is left to settle, or the lease has ended."""
        while self.lease_s and not self._settled.is_set():
            with anyio.move_on_after(self.lease_s):
                await self._settled.wait()

    async def extend(self, *, deadline_s: float = SETTLE_S) -> None:
        """Begin the lease anew. Raises LeaseLost when it is over."""
        began_s = anyio.current_time()
        await self._settle(self._request(None, v1.Settlement.EXTEND), deadline_s)
        self._lease.until_s = began_s + self._lease.seconds

    async def _send(
        self, request: SettleRequest, deadline_s: float, uptos: Sequence[int] | None = None
    ) -> None:
        """Send it. `uptos`: the ends of its spans as they were before some were joined."""
        spans = request.spans
        if uptos is None:
            if len(spans) > SPANS_MAX:
                await self._send_parts(request, deadline_s)
                return
            uptos = [it.upto for it in spans]
        self._asked_ticks.update(uptos)
        others = request.how is not v1.Settlement.ACKNOWLEDGE or request.txn_id
        if others and self._lease.mode is not GroupMode.SHARED:
            # What comes again takes with it what is behind it: also when a transaction ends.
            self._may_lack = True
        try:
            await self._settle(request, deadline_s)
        except LeaseLost:
            self._settled.set()
            raise
        self._settled_ticks.update(uptos)
        if others and request.how is v1.Settlement.RETURN:
            self._settled_ticks.update(self._uptos_behind(set(uptos)))
        if not spans or len(self._settled_ticks) == len(self._between):
            self._settled.set()

    async def _send_parts(self, whole: SettleRequest, deadline_s: float) -> None:
        """Send more than one request takes: spans are joined, and what is left goes in parts."""
        until_s = anyio.current_time() + deadline_s
        asked = None if self._may_lack else self._asked_ticks
        parts = parts_of(whole.spans, SPANS_MAX, asked)
        if whole.how == v1.Settlement.RETURN:
            # The last ones first: an ordered group takes back with a message all that is behind it.
            parts.reverse()
        for at, part in enumerate(parts):
            request = replace(whole, spans=part.spans)
            try:
                await self._send(request, until_s - anyio.current_time(), part.uptos)
            except TidemarkError as error:
                if len(parts) == 1:
                    raise
                raise part_error(error, parts, at) from error

    def _request(self, messages: Iterable[Received] | None, how: v1.Settlement) -> SettleRequest:
        spans = [] if messages is None else self._spans(list(messages))
        return SettleRequest(self._lease.number, spans, how)

    def _spans(self, messages: Sequence[Received]) -> list[TickSpan]:
        """Of each tick what lies between it and the one before it: so the spans leave no gap."""
        # The usual case of a program that settles messages one by one.
        if len(messages) == 1 and messages[0].tick not in self._of_one_tick:
            span = self._between.get(messages[0].tick)
            if span is not None:
                return [span]
        if not messages:
            raise BadCommit("no messages are given; leave the argument out for all of them")
        given = {(message.id, message.tick) for message in messages}
        ticks = sorted({tick for _, tick in given})
        spans = [self._between.get(tick) for tick in ticks]
        lost = [tick for tick, span in zip(ticks, spans, strict=True) if span is None]
        if lost:
            raise BadCommit(f"the message at tick {lost[0]} is not of this batch")
        for tick in ticks:
            for id in self._of_one_tick.get(tick, ()):
                if (id, tick) not in given:
                    raise BadCommit(
                        f"message {id} is of the same transaction as one of those given: they are"
                        " acknowledged together"
                    )
        # Not joined if one request takes them: one that was acknowledged before has to be refused.
        return [it for it in spans if it is not None]

    def _uptos_behind(self, returned: set[int]) -> list[int]:
        """What an ordered group takes back with these, to deliver it again after them."""
        if self._lease.mode is GroupMode.SHARED:
            return []
        lanes, found = set[int](), list[int]()
        for tick, span in self._between.items():
            mine = self._lanes[tick]
            if span.upto in returned:
                lanes.update(mine)
            elif span.upto not in self._settled_ticks and not lanes.isdisjoint(mine):
                lanes.update(mine)
                found.append(span.upto)
        return found

    @cached_property
    def _lanes(self) -> dict[int, Sequence[int]]:
        """Of each tick what it is in order with."""
        if self._lease.mode is GroupMode.BY_VCHANNEL:
            return dict.fromkeys(self._between, (WHOLE,))
        keys: dict[int, list[bytes | None]] = {}
        for message in self.messages:
            keys.setdefault(message.tick, []).append(message.key)
        return {tick: lanes_of(of_tick) for tick, of_tick in keys.items()}

    @cached_property
    def _of_one_tick(self) -> dict[int, Sequence[int]]:
        """The ids of each transaction, by its tick."""
        found: dict[int, list[int]] = {}
        for batch in self.batches:
            if not isinstance(batch.ticks, range):
                for id, tick in zip(batch.ids, batch.ticks, strict=True):
                    found.setdefault(tick, []).append(id)
        return dict(found)

    @cached_property
    def _between(self) -> dict[int, TickSpan]:
        ticks = sorted({tick for batch in self.batches for tick in batch.ticks})
        afters = [self._lease.span.after, *ticks[:-1]]
        uptos = [*ticks[:-1], self._lease.span.upto]
        pairs = zip(ticks, afters, uptos, strict=True)
        return {tick: TickSpan(TimeTick(after), TimeTick(upto)) for tick, after, upto in pairs}
