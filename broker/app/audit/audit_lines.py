"""A record as a line of JSON. ASCII alone: no name in it can end the line or forge another one."""

import json
from datetime import UTC, datetime
from typing import Any

from broker.core.audit.audit_record import NOBODY, AuditRecord


def audit_line(record: AuditRecord) -> bytes:
    """The line, with its end. `user`, `method` and `repeated` are there only if they have a value.

    `time` is when the call ended, in UTC.
    """
    moment = datetime.fromtimestamp(record.at_ms / 1000, UTC)
    fields: dict[str, Any] = {
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{record.at_ms % 1000:03d}Z",
        "kind": record.kind.value,
        "action": record.action,
        "who": record.who,
        "from": record.peer or NOBODY,
        "on": dict(record.named),
        "decision": record.decision.value,
        "outcome": record.outcome,
        "ms": round(record.took_ms, 3),
    }
    if record.user:
        fields["user"] = record.user
    if record.method:
        fields["method"] = record.method
    if record.repeated:
        fields["repeated"] = record.repeated
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
