"""Sums identical refusals, so that a flood of them is a few lines that say how many there were.

The first refusal of its kind is a line at once. The same again within `window_s` is only counted,
and the window ends with one line that has the count. A peer whose refusals differ all the time gets
`PER_PEER_MAX` lines a window; the others of it are summed without their details. So are those of
further peers once `KINDS_MAX` kinds are counted at the same time.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from broker.core.audit.audit_record import AuditRecord

WINDOW_S: Final = 60.0
PER_PEER_MAX: Final = 32
KINDS_MAX: Final = 1024
ANY: Final = "*"


@dataclass(slots=True)
class _Counted:
    record: AuditRecord
    host: str
    ends_s: float
    repeated: int = 0

    def sum(self) -> AuditRecord:
        """The newest of them, from the host alone: the port changes with each connection."""
        return replace(self.record, peer=self.host, repeated=self.repeated)


class RepeatedRefusals:
    """The refusals of one process in the windows that are open."""

    def __init__(
        self,
        window_s: float = WINDOW_S,
        per_peer_max: int = PER_PEER_MAX,
        kinds_max: int = KINDS_MAX,
    ) -> None:
        self._window_s = window_s
        self._per_peer_max = per_peer_max
        self._kinds_max = kinds_max
        # In the order in which their windows end, as all are equally long.
        self._counted: dict[Hashable, _Counted] = {}
        self._of_host: Counter[str] = Counter()

    def is_open(self) -> bool:
        """Whether a window is open, so that `ended` has something to say later."""
        return bool(self._counted)

    def take(self, record: AuditRecord, now_s: float) -> AuditRecord | None:
        """The line to write now; None when it is only counted."""
        host = record.peer.rpartition(":")[0]
        key = _kind_of(record, host)
        if key not in self._counted:
            if self._of_host[host] >= self._per_peer_max:
                record, key = _without_details(record, host)
            elif len(self._counted) >= self._kinds_max:
                host = ANY
                record, key = _without_details(replace(record, who=ANY, user=""), host)
        found = self._counted.get(key)
        if found is not None:
            found.repeated += 1
            found.record = record
            return None
        self._counted[key] = _Counted(record, host, now_s + self._window_s)
        self._of_host[host] += 1
        return record

    def ended(self, now_s: float) -> list[AuditRecord]:
        """The lines of windows that have ended: one for each refusal that came again.

        What came again goes on being counted, and what did not is forgotten.
        """
        lines: list[AuditRecord] = []
        for key, it in list(self._counted.items()):
            if it.ends_s > now_s:
                break
            del self._counted[key]
            if it.repeated:
                lines.append(it.sum())
                self._counted[key] = _Counted(it.record, it.host, now_s + self._window_s)
            else:
                self._forget(it.host)
        return lines

    def all(self) -> list[AuditRecord]:
        """The lines of all windows, which end now."""
        lines = [it.sum() for it in self._counted.values() if it.repeated]
        self._counted.clear()
        self._of_host.clear()
        return lines

    def _forget(self, host: str) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]


def _kind_of(record: AuditRecord, host: str) -> Hashable:
    """Equal for refusals that are the same; the port of a peer changes with each connection."""
    named = tuple(
        [
            (key, name if isinstance(name, str | int) else tuple(name))
            for key, name in record.named.items()
        ]
    )
    return host, record.who, record.user, record.method, record.outcome, named


def _without_details(record: AuditRecord, host: str) -> tuple[AuditRecord, Hashable]:
    """A line for all other refusals of a peer, with who it is and nothing of what was asked."""
    whole = replace(record, action=ANY, method=ANY, outcome=ANY, named={}, peer=host)
    return whole, (host, ANY)
