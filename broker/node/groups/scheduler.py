"""The delayed messages of one vchannel: stores a copy of each when it is due, for groups to read.

It reads the vchannel from its oldest delayed message on, and remembers ids and times, no messages.
What was released is in the log: see `broker/core/groups/schedule.py`. So a new life, also at
another node, reads the same and goes on; nothing is released twice, and nothing is left out.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from actors import Actor, ActorError, ChildSpec, Context, Envelope, MailboxSpec, Overflow, Restart
from broker.core.groups.due_times import is_delayed
from broker.core.groups.group_changes import MessagesAcked
from broker.core.groups.schedule import Schedule
from broker.core.log.delivery import DeliveredItem
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, PChannelName, TimeTick
from broker.model.message import RELEASED
from broker.model.position import ReadPosition
from broker.model.record import RecordSlice
from broker.node.groups.due_messages import DueMessages
from broker.node.groups.group_reader import Answer, GroupReader, position_or_refusal
from broker.node.groups.group_writer import GroupWriter
from broker.node.scanner_messages import Delivery
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.headers import BadHeader

RETRY_S: Final = 1.0
FLOOR_S: Final = 60.0
"""How often it is written down from where on a new life has to read."""
PULL_BYTES: Final = 1 << 20

notes = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class LookAtSchedule:
    """A timer: something was read, or it is time to try again."""


LOOK = LookAtSchedule()


class Scheduler(Actor[LookAtSchedule]):
    """See the module."""

    _context: Context[LookAtSchedule]
    _opened: OpenChannel
    _reader: GroupReader
    _writer: GroupWriter
    _due: DueMessages

    def __init__(self, name: PChannelName, key: GroupKey, node: NodeRuntime) -> None:
        self._name = name
        self._key = key
        self._node = node
        self._begun = False
        self._at: ReadPosition | None = None
        """None: it begins anew, from the oldest delayed message."""
        self._answer: Answer | None = None
        self._life = 0
        self._restart()

    def _restart(self) -> None:
        self._life += 1
        self._answer = None
        self._schedule = Schedule()
        self._newest: ReleasedMessage | None = None
        """The last message that the log has as released; None: not known of any."""
        self._caught_up = False
        self._mark = MessageId(0)
        self._read_since_floor = False
        self._at = None

    async def started(self, context: Context[LookAtSchedule]) -> None:
        """Begin to read; end when there is no such schedule any more."""
        self._context = context
        opened = self._node.open_channels.find(self._name)
        if opened is None or self._key not in opened.groups.table.groups:
            context.stop()
            return
        self._opened = opened
        self._reader = GroupReader(context, opened, self._key, self._node)
        self._writer = GroupWriter(opened, self._node, context.clock)
        self._due = DueMessages(opened, self._node.headers)
        self._floor_s = context.clock.monotonic_s()
        self._begun = True
        context.after(0.0, LOOK)

    async def receive(self, batch: Sequence[Envelope[LookAtSchedule]]) -> None:
        """Take what was read, release what is due, read on."""
        if self._key not in self._opened.groups.table.groups:
            self._context.stop()
            return
        answer, self._answer = self._answer, None
        if self._at is None:
            await self._begin()
        elif answer is not None:
            await self._take(answer)

    async def stopped(self) -> None:
        """Nothing reads for it any more."""
        if self._begun:
            self._opened.groups.scheduled.pop(self._key.vchannel, None)
            self._reader.close()

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many messages wait, and whether all of them are known yet."""
        return {
            "vchannel": self._key.vchannel,
            "delayed": len(self._schedule),
            "caught_up": int(self._caught_up),
        }

    async def _begin(self) -> None:
        # A release of an earlier life may still be under way: it lies before the mark, or nowhere.
        mark = await self._writer.mark(self._key.vchannel, self._key.name)
        floor = self._opened.groups.table.groups[self._key].floor
        at = mark if isinstance(mark, Refusal) else await position_or_refusal(self._reader, floor)
        if isinstance(mark, Refusal) or isinstance(at, Refusal):
            self._again(at)
            return
        self._mark, self._at = mark, at
        await self._pull(at)

    def _again(self, why: object) -> None:
        notes.debug("%s: the schedule begins anew: %s", self._key.vchannel, why)
        self._restart()
        self._context.after(RETRY_S, LOOK)

    async def _pull(self, at: ReadPosition) -> None:
        life = self._life

        def answered(answer: Answer) -> None:
            # Of a reading that was given up nothing is taken.
            if life == self._life:
                self._answer = answer
                self._context.after(0.0, LOOK)

        try:
            await self._reader.pull(at, PULL_BYTES, answered)
        except ActorError as error:
            self._again(error)

    async def _take(self, answer: Answer) -> None:
        if not isinstance(answer, Delivery):
            if not isinstance(answer, Refusal):
                self._reader.lost()
            self._again(answer)
            return
        for item in answer.items:
            self._remember(item)
        if self._newest is not None:
            # Nothing that is read later comes before it. Now, and not once it has caught up: what
            # was released since the floor may be more than memory holds.
            self._schedule.released(self._newest)
        self._at = answer.cursor
        self._caught_up = self._caught_up or answer.cursor.next_id > self._mark
        self._opened.groups.scheduled[self._key.vchannel] = len(self._schedule)
        if self._caught_up and not await self._release(answer.cursor.tick):
            return
        await self._write_floor(answer.cursor.tick)
        await self._pull(answer.cursor)

    def _remember(self, item: DeliveredItem) -> None:
        if not isinstance(item, RecordSlice):
            return
        self._read_since_floor = True
        record, headers = item.record, self._node.headers
        if record.kind == RELEASED:
            # In order, so the last one is the newest.
            try:
                self._newest = headers.released_message(record.body[-record.sizes[-1] :])
            except BadHeader as error:
                notes.warning("%s: message %d: %s", record.vchannel, record.base_id, error)
            return
        times = None if record.batch is None else headers.delivery_times(record.batch.properties)
        if times is not None and is_delayed(times, item.batch_tick):
            for index in range(item.first, item.end):
                message = ReleasedMessage(times.at_ms, record.base_id + index)
                self._schedule.add(message, item.first_tick)

    async def _release(self, closed: TimeTick) -> bool:
        """Release what is due at this tick; False when it has to begin anew."""
        if self._node.full is not None:
            # Copies would fill the room that is kept for what frees a full disk.
            return True
        while due := self._schedule.due(closed >> TICK_LOGICAL_BITS, self._due.count_max):
            taken, bodies = await self._due.copies(due)
            if bodies:
                placed = await self._writer.release(self._key.vchannel, bodies)
                if isinstance(placed, Refusal):
                    # It may be stored nevertheless: the log will tell.
                    self._again(placed)
                    return False
            self._schedule.released(taken)
        self._opened.groups.scheduled[self._key.vchannel] = len(self._schedule)
        return True

    async def _write_floor(self, reached: TimeTick) -> None:
        """Write down, now and then, up to where nothing waits any more."""
        now_s = self._context.clock.monotonic_s()
        if now_s - self._floor_s < FLOOR_S or not self._caught_up:
            return
        self._floor_s = now_s
        floor = self._opened.groups.table.groups[self._key].floor
        if not self._read_since_floor and not self._holds(floor):
            return
        oldest = self._schedule.oldest_tick()
        upto = reached if oldest is None else TimeTick(oldest - 1)
        self._read_since_floor = False
        if upto > floor:
            change = MessagesAcked(self._key.name, (TickSpan(floor, upto),))
            await self._writer.write(self._key.vchannel, change)

    def _holds(self, floor: TimeTick) -> bool:
        """Whether it holds back what could go: that of a quiet vchannel would for ever."""
        segments = self._opened.log.segments()
        return bool(segments) and floor <= segments[-1].last_tick


def scheduler_spec(name: PChannelName, key: GroupKey, node: NodeRuntime) -> ChildSpec:
    """The Scheduler of this schedule, beside the Groups of the pchannel."""
    return ChildSpec(
        name=f"{key.name}@{key.vchannel}",
        build=lambda: Scheduler(name, key, node),
        mailbox=MailboxSpec(bound=64, overflow=Overflow.FAIL, batch_max=16),
        restart=Restart.TRANSIENT,
    )
