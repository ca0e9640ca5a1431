"""Decides that messages of a group die: members rejected them, or they had their last delivery.

What is decided is a record; from then on no member gets them. `DeadLetters` carries it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import ActorError, Context, Envelope
from broker.core.groups.group_changes import MessagesDying
from broker.core.groups.group_rules import DYING_MAX, reject_refusal
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Returned
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import PChannelName
from broker.node.group_messages import AckMessages, RejectMessages
from broker.node.groups.ack_writes import AckWrites, TakenAck
from broker.node.groups.dead_letter_copies import dead_letters_spec
from broker.node.groups.group_writer import GroupWriter
from broker.node.state.node_runtime import NodeRuntime

START_S = 5.0
RETRY_S = 1.0
EXCEEDED = "delivered {times} times without an acknowledgement"


@dataclass(frozen=True, slots=True)
class _Rejected:
    reject: RejectMessages
    spans: tuple[TickSpan, ...]
    times: int


class GivenUp:
    """For one Group. `look(delay_s)`: have the Group look again.

    `acks`: where those of an ordered group go, so that they stay in order with acknowledgements.
    """

    def __init__(
        self,
        book: LeaseBook,
        writer: GroupWriter,
        place: tuple[PChannelName, NodeRuntime],
        look: Callable[[float], object],
        acks: AckWrites,
    ) -> None:
        self._book = book
        self._acks = acks
        self._state = book.state
        self._writer = writer
        self._place = place
        self._look = look
        self._failed: list[_Rejected] = []
        self._unwritten: list[Returned] = []
        self._writing = 0
        self._retry_s = 0.0
        """Not before it the actor that copies is started again."""

    def reject(self, envelope: Envelope[Any], reject: RejectMessages) -> None:
        """Take the messages out of the lease; answered when it is durable that they die."""
        refusal = reject_refusal(self._state.limit, reject.cause) or self._no_room()
        if refusal is not None:
            envelope.reply(refusal)
            return
        times = self._book.times_of(reject.lease)
        spans = self._book.take_acked(reject.member, reject.lease, reject.spans)
        if isinstance(spans, Refusal):
            envelope.reply(spans)
            return
        if self._acks.in_order:
            self._writing += 1
            death = MessagesDying(self._state.key.name, spans, reject.cause, times)
            ack = AckMessages(reject.member, reject.lease, spans)
            self._acks.add(TakenAck(envelope, ack, spans, times, death, self._known))
            return
        rejected = _Rejected(reject, spans, times)

        def answered(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._failed.append(rejected)
            envelope.reply(refusal)

        self._write(spans, reject.cause, times, answered)

    def take_exceeded(self, now_s: float) -> None:
        """Have messages die that had their last delivery; give back what could not be written."""
        for it in self._failed:
            number, member = it.reject.lease, it.reject.member
            self._book.ack_failed(member, number, it.spans, now_s, it.times)
        self._failed.clear()
        self._book.exceeded += self._unwritten
        self._unwritten.clear()
        while self._book.exceeded and self._no_room() is None:
            self._exceeded(self._book.exceeded.pop(0))

    async def carry_out(self, group: Context[Any]) -> None:
        """Start the actor that copies what dies, unless it runs."""
        now_s = group.clock.monotonic_s()
        if not self._state.dying or now_s < self._retry_s:
            return
        try:
            above = group.path.rpartition("/")[0]
            spec = dead_letters_spec(*self._place, self._state.key)
            await group.tree.start_child(above, spec, deadline_s=START_S)
        except ActorError:
            # If it runs, it may be about to end: then it does not see what came last.
            self._retry_s = now_s + RETRY_S
            self._look(RETRY_S)

    def _exceeded(self, last: Returned) -> None:
        def answered(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._unwritten.append(last)

        cause = EXCEEDED.format(times=last.times)
        self._write(tuple(last.spans), cause, last.times, answered)

    def _write(
        self,
        spans: tuple[TickSpan, ...],
        cause: str,
        times: int,
        answered: Callable[[Refusal | None], None],
    ) -> None:
        self._writing += 1

        def settled(refusal: Refusal | None) -> None:
            self._known()
            answered(refusal)
            self._look(0.0 if refusal is None else RETRY_S)

        change = MessagesDying(self._state.key.name, spans, cause, times)
        self._writer.write_then(self._state.key.vchannel, change, settled)

    def _known(self) -> None:
        """Whether some messages die is known now."""
        self._writing -= 1
        self._retry_s = 0.0

    def _no_room(self) -> Refusal | None:
        waiting = len(self._state.dying) + self._writing
        if waiting < DYING_MAX:
            return None
        cause = f"{waiting} messages or batches wait to become dead letters, the limit; retry later"
        return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)
