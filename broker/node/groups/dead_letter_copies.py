"""Copies the dying messages of one group on one vchannel to its dead letters, each once.

Why each once, whatever dies: see the section on dead letters in the README of this room.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from actors import Actor, ActorError, ChildSpec, Context, Envelope, MailboxSpec, Overflow, Restart
from broker.core.groups.group_changes import MessagesAcked, MessagesDying
from broker.core.groups.group_state import GroupState
from broker.core.groups.tick_spans import TickSpans
from broker.core.log.delivery import DeliveredItem
from broker.model.failure import Refusal, Refused
from broker.model.groups.consumer_group import DeliveryLimit, DyingSpans, GroupKey, TickSpan
from broker.model.groups.dead_letter import Death, Letter, content, copied_id
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.position import ReadPosition
from broker.node.groups.dropped_vchannels import DroppedVChannels
from broker.node.groups.group_reader import Answer, GroupReader
from broker.node.groups.group_writer import GroupWriter
from broker.node.groups.timely_items import TimelyItems
from broker.node.groups.wanted_items import wanted_items
from broker.node.scanner_messages import Delivery
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

CHUNK_BYTES: Final = 1 << 20
"""About as much is read, copied and settled at once."""
LETTERS_MAX: Final = 1000
"""Copies of one record."""
UNMARKED_MAX: Final = 1 << 16
"""Messages without the mark of a copy that are compared with what is to be copied."""
PAUSE_S: Final = (0.5, 30.0)
"""Between two tries: the first one, and the longest."""


class CarryOn:
    """A timer: copy the next messages."""


class DeadLetters(Actor[CarryOn]):
    """See the module. Ends when nothing dies any more."""

    _context: Context[CarryOn]
    _opened: OpenChannel

    def __init__(self, name: PChannelName, key: GroupKey, node: NodeRuntime) -> None:
        self._name = name
        self._key = key
        self._node = node
        self._copied: set[MessageId] | None = None
        """Of which messages there may be a copy; None: to be looked up."""
        self._unmarked: set[bytes] = set()
        """The contents of what may be a copy by an older release, which did not mark them.

        A program may have appended it as well. But a message that says exactly what the copy would
        say, in the place of the copy, is as good as the copy.
        """
        self._pause_s = PAUSE_S[0]
        self._copies = 0

    async def started(self, context: Context[CarryOn]) -> None:
        """Begin at once; end when the channel is closing."""
        self._context = context
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            context.stop()
            return
        self._opened = opened
        self._timely = TimelyItems(self._node.headers, lambda: opened.tail.closed.tick)
        self._writer = GroupWriter(opened, self._node, context.clock)
        self._dropped = DroppedVChannels(opened, self._node.catalog)
        own = f"{self._key.name}~dead"
        self._reader = GroupReader(context, opened, GroupKey(self._key.vchannel, own), self._node)
        context.after(0.0, CarryOn())

    async def receive(self, batch: Sequence[Envelope[CarryOn]]) -> None:
        """Copy some messages, then come back for more."""
        state = self._opened.groups.table.groups.get(self._key)
        if state is None or state.limit is None or not state.dying:
            self._opened.groups.troubles.pop(self._key, None)
            self._context.stop()
            return
        try:
            refusal = await self._carry_on(state, state.limit)
        except Refused as error:
            refusal = error.refusal
        except ActorError as error:
            refusal = str(error)
        if refusal is None:
            self._opened.groups.troubles.pop(self._key, None)
            self._pause_s = PAUSE_S[0]
            self._context.after(0.0, CarryOn())
            return
        # What was sent may be stored or not: look again, before anything is copied.
        self._copied = None
        self._reader.lost()
        cause = refusal.cause if isinstance(refusal, Refusal) else refusal
        self._opened.groups.troubles[self._key] = f"dead letters cannot be written: {cause}"
        self._context.after(self._pause_s, CarryOn())
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])

    async def stopped(self) -> None:
        """Nothing reads for it any more."""
        with contextlib.suppress(AttributeError):
            self._reader.close()

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many messages were copied."""
        return {"vchannel": self._key.vchannel, "copies": self._copies}

    async def _carry_on(self, state: GroupState, limit: DeliveryLimit) -> Refusal | str | None:
        # Not copied before that is known: what is appended to a dropped collection is lost.
        if await self._dropped.is_dropped(limit.vchannel):
            return (
                f"the collection of {limit.vchannel} was dropped; alter the group to have them in a"
                " new one, or without a limit to have the messages delivered again"
            )
        # The edge, which holds clients to limits, does not see these copies. Before the look-up,
        # which writes a record and reads the log: a full collection may stay full for days.
        if (full := self._node.storage.refusal(limit.vchannel)) is not None:
            return full
        if self._copied is None:
            found = await self._look_up(state, limit)
            if not isinstance(found, set):
                return found
            self._copied = found
        dying = state.dying[0]
        read = await self._read(dying)
        if isinstance(read, Refusal | str):
            return read
        items, spans = read
        letters = self._node.headers.letters(items)
        refusal = await self._copy(letters, dying, limit)
        if refusal is not None:
            return refusal
        settled = MessagesAcked(self._key.name, spans)
        refusal = await self._writer.write(self._key.vchannel, settled)
        if refusal is None:
            self._copied -= {it.id for it in letters}
        return refusal

    async def _look_up(
        self, state: GroupState, limit: DeliveryLimit
    ) -> set[MessageId] | Refusal | str:
        """Of which dying messages a copy is stored.

        First a record that changes nothing. All that an earlier life sent to the Appender was
        before it, so that is stored below its tick, or it never will be.
        """
        first = state.dying[0]
        fence = MessagesDying(self._key.name, first.spans, first.cause, first.times)
        tick = await self._writer.tick_of(self._key.vchannel, fence)
        if isinstance(tick, Refusal):
            return tick
        name = f"{self._key.name}@{self._key.vchannel}~copies"
        copies = GroupReader(
            self._context, self._opened, GroupKey(limit.vchannel, name), self._node
        )
        found: set[MessageId] = set()
        self._unmarked.clear()
        try:
            cursor = await copies.behind(min([it.since for it in state.dying]))
            while cursor.tick < tick:
                delivery = await _pulled(copies, cursor)
                if not isinstance(delivery, Delivery):
                    return delivery
                for letter in self._node.headers.letters(delivery.items):
                    id = copied_id(letter, self._key)
                    if id is not None:
                        found.add(id)
                    elif not letter.is_copy and len(self._unmarked) < UNMARKED_MAX:
                        self._unmarked.add(content(letter))
                cursor = delivery.cursor
        finally:
            copies.close()
        return found

    async def _read(
        self, dying: DyingSpans
    ) -> tuple[Sequence[DeliveredItem], tuple[TickSpan, ...]] | Refusal | str:
        """Some of the messages, from the first one on, and the spans that they are all of."""
        spans = TickSpans(dying.spans)
        items: list[DeliveredItem] = []
        after = dying.spans[0].after
        cursor = await self._reader.behind(after)
        while True:
            delivery = await _pulled(self._reader, cursor)
            if not isinstance(delivery, Delivery):
                return delivery
            items += delivery.items
            cursor = delivery.cursor
            if not cursor.inside and (items or cursor.tick >= spans.end):
                break
        reached = TimeTick(max(after, min(cursor.tick, spans.end)))
        wanted = TickSpans(spans.within(TickSpan(after, reached)))
        return wanted_items(items, wanted, self._timely), tuple(wanted)

    async def _copy(
        self, letters: Sequence[Letter], dying: DyingSpans, limit: DeliveryLimit
    ) -> Refusal | None:
        death = Death(self._key, limit.origin, dying.cause, dying.times)
        copied = self._copied or set()
        left = [it for it in letters if it.id not in copied]
        if self._unmarked:
            left = [it for it in left if content(it, death.marks(it)) not in self._unmarked]
        while left:
            some = _fitting(left)
            batch = self._node.headers.copies(
                limit.vchannel, [(it, death.marks(it)) for it in some]
            )
            (outcome,) = await self._writer.append(batch)
            if isinstance(outcome, Refusal):
                return outcome
            self._copies += len(some)
            self._opened.groups.noted(self._key).dead += len(some)
            left = left[len(some) :]
        return None


def dead_letters_spec(name: PChannelName, node: NodeRuntime, key: GroupKey) -> ChildSpec:
    """One for each group on a vchannel at a time, so that none copies beside another one."""
    return ChildSpec(
        name=f"{key.name}@{key.vchannel}~dead",
        build=lambda: DeadLetters(name, key, node),
        mailbox=MailboxSpec(bound=16, overflow=Overflow.FAIL, batch_max=16),
        restart=Restart.TRANSIENT,
    )


async def _pulled(reader: GroupReader, cursor: ReadPosition) -> Delivery | Refusal | str:
    answers: list[Answer] = []
    arrived = anyio.Event()

    def answered(answer: Answer) -> None:
        answers.append(answer)
        arrived.set()

    # It is answered within the deadline of a pull, if only by an error.
    await reader.pull(cursor, CHUNK_BYTES, answered)
    await arrived.wait()
    (answer,) = answers
    return str(answer) if isinstance(answer, Exception) else answer


def _fitting(letters: Sequence[Letter]) -> Sequence[Letter]:
    """The first ones that fit into one record, at least one."""
    size = count = 0
    for letter in letters[:LETTERS_MAX]:
        size += letter.size
        if count and size > CHUNK_BYTES:
            break
        count += 1
    return letters[:count]
