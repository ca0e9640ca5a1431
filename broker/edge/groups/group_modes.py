"""Modes of groups on the wire."""

from collections.abc import Mapping
from typing import Final

from broker.model.failure import invalid_argument
from broker.model.groups.group_mode import GroupMode
from schemas.generated.tidemark import v1

_ENCODED: Final[Mapping[GroupMode, v1.GroupMode]] = {
    GroupMode.SHARED: v1.GroupMode.SHARED,
    GroupMode.BY_VCHANNEL: v1.GroupMode.ORDERED_BY_VCHANNEL,
    GroupMode.BY_KEY: v1.GroupMode.ORDERED_BY_KEY,
}
_DECODED: Final[Mapping[int, GroupMode]] = {int(it): mode for mode, it in _ENCODED.items()}


def encoded_mode(mode: GroupMode) -> v1.GroupMode:
    """The mode as it is sent."""
    return _ENCODED[mode]


def asked_mode(mode: int) -> GroupMode | None:
    """The mode that is asked for; None for none. Raises Refused for one of a later release."""
    if not mode:
        return None
    if mode not in _DECODED:
        raise invalid_argument(f"mode {mode} of a group is not known to this release")
    return _DECODED[mode]
