"""Who should own what, so that all members own about as much and as little moves as possible.

For the hash slots of a group by key, among the members on a vchannel; and for the vchannels of a
group by vchannel, among the members on all of them.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T", int, str)
M = TypeVar("M", int, str)


def balanced(owners: Mapping[T, M | None], members: Collection[M]) -> dict[T, M]:
    """The member that should own each part; `owners`: who owns it now, None for nobody.

    Of n parts and m members each has n // m parts, or one more; those that own more keep the one
    more. What a member may keep it keeps. So no other plan with these shares moves fewer parts,
    a balanced one moves none, a join moves parts to the new member only, and a death those of the
    dead one only. Whoever plans finds the same, also amid the moves. Empty without members.
    O(n log n).
    """
    if not members:
        return {}
    owned: dict[M, list[T]] = {member: [] for member in sorted(members)}
    free: list[T] = []
    for part in sorted(owners):
        owner = owners[part]
        (free if owner is None else owned.get(owner, free)).append(part)
    least, more = divmod(len(owners), len(owned))
    # Stable, so by name otherwise: a plan that is carried out in part leads to the same plan.
    by_size = sorted(owned, key=lambda it: len(owned[it]) <= least)
    shares = {member: least + (at < more) for at, member in enumerate(by_size)}
    plan: dict[T, M] = {}
    for member, share in shares.items():
        plan |= dict.fromkeys(owned[member][:share], member)
        free += owned[member][share:]
    free.sort()
    for member, share in shares.items():
        taken = max(0, share - len(owned[member]))
        plan |= dict.fromkeys(free[:taken], member)
        del free[:taken]
    return plan
