"""The messages of the MetaTable."""

from dataclasses import dataclass

from actors import Request
from broker.model.ids import TimeTick
from broker.model.master.table_change import TableChange


@dataclass(frozen=True, slots=True)
class ApplyChange(Request[None]):
    """Apply a change; durable when answered. A repeat has no effect. Raises MetaError.

    `tick`: of its copy on the control channel.
    """

    change: TableChange
    tick: TimeTick


MetaTableMessage = ApplyChange
