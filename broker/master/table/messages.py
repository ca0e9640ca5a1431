"""The messages of the MetaTable."""

from dataclasses import dataclass
from typing import Final

from actors import Request
from broker.model.ids import TimeTick
from broker.model.master.table_change import TableChange
from broker.ports.callbacks import EndRecord


@dataclass(frozen=True, slots=True)
class ApplyChange(Request[int | None]):
    """Apply a change; durable when answered. A repeat has no effect. Raises MetaError.

    `tick`: of its copy on the control channel. `end`: to be stored with the change; answered with
    its new revision, or None when it is not stored. Conflict: neither is.
    """

    change: TableChange
    tick: TimeTick
    end: EndRecord | None = None


CLASHES_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class ClearClashes(Request[tuple[str, ...]]):
    """Forget these clashes, up to CLASHES_AT_ONCE; answered with those that are not known.

    Durable when answered. Raises MetaError.
    """

    ids: tuple[str, ...]


MetaTableMessage = ApplyChange | ClearClashes
