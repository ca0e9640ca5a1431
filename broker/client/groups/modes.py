"""In which mode a group is: as a program says it, and a server."""

from collections.abc import Mapping
from typing import Final, Literal

from broker.client.errors import BadTarget
from broker.model.groups.group_mode import GroupMode
from schemas.generated.tidemark import v1

Mode = Literal["shared", "ordered"]
OrderedBy = Literal["vchannel", "key"]

MODES: Final[Mapping[GroupMode, v1.GroupMode]] = {
    GroupMode.SHARED: v1.GroupMode.SHARED,
    GroupMode.BY_VCHANNEL: v1.GroupMode.ORDERED_BY_VCHANNEL,
    GroupMode.BY_KEY: v1.GroupMode.ORDERED_BY_KEY,
}
_KNOWN: Final = {int(it): mode for mode, it in MODES.items()}


def mode_of(mode: Mode | None, by: OrderedBy | None) -> GroupMode | None:
    """The mode that is meant; None: not said. Raises BadTarget.

    Ordered without `by` is by vchannel: so it holds for messages without a key, too.
    """
    match (mode, by):
        case (None, None):
            return None
        case ("shared", None):
            return GroupMode.SHARED
        case ("ordered", None | "vchannel"):
            return GroupMode.BY_VCHANNEL
        case ("ordered", "key"):
            return GroupMode.BY_KEY
        case _:
            raise BadTarget(
                f"mode={mode!r} with by={by!r} is no mode of a group; use mode='shared', or"
                " mode='ordered' with by='vchannel' or by='key'"
            )


def told_mode(mode: v1.GroupMode) -> GroupMode:
    """What a server says. An earlier release says nothing, as it has shared ones only."""
    return _KNOWN.get(int(mode), GroupMode.SHARED)
