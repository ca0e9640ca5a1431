"""What a member of a consumer group is doing, and what a group is, in words."""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.model.groups.consumer_group import GroupLag, GroupView, MemberView

STUCK_LEASES: Final = 0.9
"""A member that takes nothing, with a batch older than this share of a lease, is slow."""
WAITING, PAUSED = "waiting for messages", "paused: takes nothing"
SLOW, WORKING = "slow: its leases run out", "working"


def member_state(view: GroupView, member: MemberView) -> str:
    """Why a member gets nothing, if so; a dead one leaves, so it is not here."""
    if member.waiting:
        return WAITING
    if not member.leases:
        return PAUSED
    old = member.oldest_s * 1000 >= STUCK_LEASES * view.group.lease_ms
    return SLOW if old else WORKING


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
