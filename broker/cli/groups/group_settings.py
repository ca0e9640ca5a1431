"""How a group delivers, as options of commands."""

from dataclasses import dataclass

from broker.client.groups.modes import Mode, OrderedBy


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`lease_s` None: as it is. `deliveries_max` None: deliveries are not limited.

    `mode` None: shared, or that of the group that exists.
    """

    lease_s: float | None
    deliveries_max: int | None
    mode: Mode | None = None
    by: OrderedBy | None = None
