"""Records deliveries of a group with a limit, before members get the messages.

A first delivery is not recorded: a new life of the Group takes each message that may have been
leased before as delivered once when it leases it, and records that.
"""

from collections.abc import Callable
from typing import Any

from actors import Envelope
from broker.core.groups.group_changes import MessagesTried
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Lease
from broker.model.failure import Refusal, StreamingCode
from broker.node.group_messages import BeginLease, LeasedMessages
from broker.node.groups.group_writer import GroupWriter
from broker.node.groups.waiting_members import NOTHING


class CountedDeliveries:
    """For one Group. `look` is called when a record could not be written."""

    def __init__(self, book: LeaseBook, writer: GroupWriter, look: Callable[[], object]) -> None:
        self._book = book
        self._key = book.state.key
        self._writer = writer
        self._look = look
        self._failed: list[Lease] = []

    def give(self, envelope: Envelope[Any], lease: Lease, messages: LeasedMessages) -> None:
        """Answer a member that waits, once the count is durable if it has to be."""
        if not lease.record:
            envelope.reply(messages)
            return

        def answered(refusal: Refusal | None) -> None:
            if refusal is None:
                envelope.reply(messages)
                return
            self._failed.append(lease)
            envelope.reply(NOTHING)
            self._look()

        self._write(lease, answered)

    def begin(self, envelope: Envelope[Any], begin: BeginLease) -> None:
        """Count a last delivery, and answer when that is durable."""
        lease = self._book.begin(begin.member, begin.lease)
        if isinstance(lease, Refusal) or not lease.alone or lease.begun:
            envelope.reply(lease if isinstance(lease, Refusal) else None)
            return

        def answered(refusal: Refusal | None) -> None:
            if refusal is None and not self._book.begun(lease):
                cause = f"lease {lease.number} was over before it had begun"
                refusal = Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause)
            envelope.reply(refusal)

        self._write(lease, answered)

    def return_failed(self, now_s: float) -> None:
        """Return what no member got, because its count was not stored."""
        for lease in self._failed:
            self._book.not_given(lease, now_s)
        self._failed.clear()

    def _write(self, lease: Lease, answered: Callable[[Refusal | None], None]) -> None:
        change = MessagesTried(self._key.name, tuple(lease.left), lease.times)
        self._writer.write_then(self._key.vchannel, change, answered)
