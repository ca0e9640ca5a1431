"""How a group delivers, as options of commands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`lease_s` None: as it is. `deliveries_max` None: deliveries are not limited."""

    lease_s: float | None
    deliveries_max: int | None
