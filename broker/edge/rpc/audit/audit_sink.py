"""Where the records of an audit go, as the calls see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.audit.audit_record import AuditRecord


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """Lines since the start. `failing`: why the file cannot be written now; "" while it can."""

    written: int = 0
    dropped: int = 0
    failing: str = ""


class AuditSink(Protocol):
    """Where records go."""

    def put(self, record: AuditRecord) -> None:
        """Take the record, or count it as dropped; never waits."""
        ...

    def figures(self) -> AuditFigures:
        """What became of the records."""
        ...

    def warnings(self) -> Sequence[str]:
        """What an operator should know; empty while records are written."""
        ...


class NoAudit:
    """A sink for servers without a folder, as in tests."""

    def put(self, record: AuditRecord) -> None:
        """Do nothing."""

    def figures(self) -> AuditFigures:
        """None were written."""
        return AuditFigures()

    def warnings(self) -> Sequence[str]:
        """Nothing."""
        return ()
