"""What a member of a consumer group is doing, and what a group is, in words."""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.core.groups.key_lanes import SLOTS
from broker.model.groups.consumer_group import GroupLag, GroupView, MemberView
from broker.model.groups.group_mode import GroupMode

STUCK_LEASES: Final = 0.9
"""A member that takes nothing, with a batch older than this share of a lease, is slow."""
WAITING, PAUSED = "waiting for messages", "paused: takes nothing"
SLOW, WORKING = "slow: its leases run out", "working"


def member_state(view: GroupView, member: MemberView) -> str:
    """Why a member gets nothing, if so; a dead one leaves, so it is not here.

    Slow: leases of it have run out, or are about to, since it last settled anything.
    """
    if member.waiting:
        return WAITING
    if not member.leases:
        return PAUSED
    old = member.oldest_s * 1000 >= STUCK_LEASES * view.group.lease_ms
    return SLOW if old or member.ran_out else WORKING


def mode_text(mode: GroupMode) -> str:
    """How the group hands out messages."""
    return mode.value if mode is GroupMode.SHARED else f"ordered by {mode.value}"


def owned_text(view: GroupView, member: MemberView) -> str:
    """What of a vchannel the member of an ordered group owns."""
    if view.group.mode is GroupMode.BY_KEY:
        return f"{member.owns} of {SLOTS} key slots"
    return "the vchannel" if member.owns else "-"


def worst_state(states: Iterable[str]) -> str:
    """Of one member on several vchannels, at least one: what a person should know first."""
    return min(states, key=(SLOW, WORKING, PAUSED, WAITING).index)


def seen_of(views: Sequence[GroupView]) -> int:
    """The tick at which somebody was there last, on any vchannel; 0 while somebody is."""
    seen = [it.seen for it in views]
    return max(seen) if all(seen) else 0


def total_lag(views: Sequence[GroupView]) -> GroupLag | None:
    """Messages and bytes of all, the age of the oldest; None while one is not counted."""
    lags = [it.lag for it in views if it.lag is not None]
    if len(lags) < len(views):
        return None
    return GroupLag(
        sum([it.messages for it in lags]),
        sum([it.bytes for it in lags]),
        max([it.ms for it in lags], default=0),
    )
