"""Decides which calls are recorded, makes their records, and sums what is refused again and again.

Nothing here waits: records go to an `AuditSink`, which takes them at once or counts them as
dropped.
"""

from collections.abc import Mapping
from typing import Final

from actors import Alarm, Clock, SystemClock
from broker.core.audit.audit_record import (
    NOBODY,
    OK,
    AuditKind,
    AuditRecord,
    Decision,
    Names,
)
from broker.core.audit.repeated_refusals import RepeatedRefusals
from broker.edge.rpc.audit.audit_sink import AuditSink, NoAudit
from broker.edge.rpc.audit.audited_call import AuditedCall
from broker.edge.rpc.audit.audited_methods import METHODS, Audited
from broker.edge.rpc.audit.named_objects import add_names, cut_name, named_in
from broker.edge.rpc.peer_names import ConnectedPeer
from broker.model.failure import Refusal

LOOK_S: Final = 5.0
"""Between two looks at sums that are due, while there are any."""
UNKNOWN_METHOD: Final = Audited(AuditKind.INTERNAL, "unknown")


class AuditTrail:
    """One for a process. `data`: whether access to data is recorded, too; may change."""

    def __init__(
        self,
        sink: AuditSink | None = None,
        clock: Clock | None = None,
        repeats: RepeatedRefusals | None = None,
    ) -> None:
        self.sink = sink or NoAudit()
        self.data = False
        self._clock = clock or SystemClock()
        self._repeats = repeats or RepeatedRefusals()
        self._look: Alarm | None = None

    def begin(
        self, method: str, peer: ConnectedPeer | None, metadata: Mapping[str, str | bytes]
    ) -> AuditedCall:
        """A call that begins now; give it to `end` when it has ended."""
        return AuditedCall(
            method,
            peer,
            metadata,
            self._clock.monotonic_s(),
            self._part_refused,
            with_vchannels=self.data,
        )

    def end(self, call: AuditedCall) -> None:
        """Record the call, if it is to be recorded."""
        audited = METHODS.get(call.method, UNKNOWN_METHOD)
        refused = call.refused or call.denied
        if refused:
            self._sum_up(self._record(call, audited, Decision.REFUSED))
        elif audited.kind is AuditKind.ADMIN or (audited.kind is AuditKind.DATA and self.data):
            self.sink.put(self._record(call, audited, Decision.ALLOWED))

    def note(self, action: str, named: Names | None = None, outcome: str = OK) -> None:
        """Record what the process does by itself or for its operator, such as its start."""
        self.sink.put(
            AuditRecord(
                self._clock.wall_ms(),
                AuditKind.ADMIN,
                action,
                "",
                NOBODY,
                "",
                Decision.ALLOWED,
                outcome,
                named=named or {},
            )
        )

    def connection_refused(self, address: str, outcome: str) -> None:
        """Record that a peer was not let in; `address` is its HOST:PORT."""
        self._refused("connect", "", address, outcome)

    def page_refused(self, path: str, address: str, outcome: str, user: str) -> None:
        """Record that a page of the HTTP port was not shown to this user, "" for nobody."""
        self._refused("observe", path, address, outcome, user)

    def _refused(
        self, action: str, method: str, address: str, outcome: str, user: str = ""
    ) -> None:
        self._sum_up(
            AuditRecord(
                self._clock.wall_ms(),
                AuditKind.OBSERVE,
                action,
                method,
                NOBODY,
                address,
                Decision.REFUSED,
                outcome,
                user,
            )
        )

    def close(self) -> None:
        """Record all sums, as the process ends."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for line in self._repeats.all():
            self.sink.put(line)

    def _part_refused(self, call: AuditedCall, refusal: Refusal, vchannel: str) -> None:
        audited = METHODS.get(call.method, UNKNOWN_METHOD)
        named = {"vchannel": cut_name(vchannel)} if vchannel else {}
        record = AuditRecord(
            self._clock.wall_ms(),
            audited.kind,
            audited.action,
            call.method,
            call.subject or NOBODY,
            call.peer_address,
            Decision.REFUSED,
            refusal.code.name,
            call.user,
            named,
        )
        self._sum_up(record)

    def _record(self, call: AuditedCall, audited: Audited, decision: Decision) -> AuditRecord:
        named = named_in(call.method, call.request, call.metadata)
        if call.vchannels:
            add_names(named, "vchannels", sorted(call.vchannels))
        return AuditRecord(
            self._clock.wall_ms(),
            audited.kind,
            audited.action,
            call.method,
            call.subject or NOBODY,
            call.peer_address,
            decision,
            call.outcome or OK,
            call.user,
            named,
            (self._clock.monotonic_s() - call.began_s) * 1000,
        )

    def _sum_up(self, record: AuditRecord) -> None:
        line = self._repeats.take(record, self._clock.monotonic_s())
        if line is not None:
            self.sink.put(line)
        if self._look is None:
            self._look = self._clock.call_later(LOOK_S, self._write_sums)

    def _write_sums(self) -> None:
        self._look = None
        for line in self._repeats.ended(self._clock.monotonic_s()):
            self.sink.put(line)
        if self._repeats.is_open():
            self._look = self._clock.call_later(LOOK_S, self._write_sums)
