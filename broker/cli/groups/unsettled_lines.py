"""What keeps a group from going on, in words: the stuck key, and what transactions hold."""

from collections.abc import Iterable
from typing import Final

from broker.cli.show.figures import span_text
from broker.cli.show.output import TICK_LOGICAL_BITS
from broker.cli.show.tables import moment
from broker.model.groups.consumer_group import GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.groups.unsettled import FirstUnsettled, HeldByTxn, Unsettled

STUCK_LEASES: Final = 2.0
"""A message that was delivered first so many leases ago, and is not settled, counts as stuck."""


def stuck_of(view: GroupView) -> FirstUnsettled | None:
    """What an ordered group waits for, if for long, or if it delivers nothing new meanwhile."""
    first = view.first
    if first is None:
        return None
    long_s = STUCK_LEASES * view.group.lease_ms / 1000
    old = first.first_s is not None and first.first_s >= long_s and bool(first.behind)
    return first if old or first.full else None


def stuck_text(views: Iterable[GroupView]) -> str:
    """In a few words, for a table; "" when nothing is stuck."""
    found = [(it, stuck) for it in views if (stuck := stuck_of(it)) is not None]
    if not found:
        return ""
    view, stuck = max(found, key=lambda it: (it[1].full, it[1].first_s or 0.0))
    since = "never delivered" if stuck.first_s is None else f"for {span_text(stuck.first_s)}"
    return f"{'full, ' if stuck.full else ''}{_key(view, stuck)} stuck {since}"


def unsettled_lines(view: GroupView) -> list[str]:
    """A line for the stuck key of a vchannel, and for each transaction that holds messages."""
    stuck, vchannel = stuck_of(view), view.group.key.vchannel
    lines = [] if stuck is None else [f"{vchannel}: {_stuck_line(view, stuck)}"]
    return lines + [f"{vchannel}: {_held_line(it)}" for it in view.held]


def _stuck_line(view: GroupView, stuck: FirstUnsettled) -> str:
    since = "it was not delivered yet"
    if stuck.first_s is not None:
        since = f"first delivered {span_text(stuck.first_s)} ago"
    parts = [
        f"{_key(view, stuck)} is stuck at tick {stuck.tick}: {stuck.state.value}",
        since,
        f"{stuck.deliveries:,} deliveries",
        f"{stuck.behind:,} messages wait behind it",
    ]
    if stuck.full:
        parts.append(
            f"{stuck.unsettled:,} messages are unsettled, the limit: nothing new is delivered, of"
            " any key"
        )
    return ", ".join(parts) + "; " + _advice(view, stuck)


def _advice(view: GroupView, stuck: FirstUnsettled) -> str:
    place = f"{view.group.key.vchannel} --from tick:{stuck.tick} --limit 1"
    look = f"`tidemark consume {place}` shows it"
    if stuck.state is Unsettled.WAITING:
        return f"{look}; start a member, or look at the one that owns it and takes nothing"
    if stuck.state is Unsettled.HELD:
        return f"{look}; end the transaction that holds it"
    if stuck.state is Unsettled.SETTLING:
        return f"{look}; if that does not end, see `tidemark health`"
    if view.group.limit is None:
        return f"{look}; acknowledge it, or let it die: `tidemark group alter --deliveries-max`"
    return f"{look}; acknowledge or reject it"


def _key(view: GroupView, stuck: FirstUnsettled) -> str:
    if view.group.mode is not GroupMode.BY_KEY:
        return "the vchannel"
    return "a message" if stuck.key_hash is None else f"key hash {stuck.key_hash:08x}"


def _held_line(held: HeldByTxn) -> str:
    who = f"transaction {held.txn}" + (f" of {held.stage}" if held.stage else "")
    line = f"{who} holds {held.ranges:,} acknowledged ranges since {_moment(held.txn)}"
    if not held.ends_ms:
        return f"{line}; its commit is being decided"
    ends = _moment(held.last_tick + (held.ends_ms << TICK_LOGICAL_BITS))
    heard = f"its writer was heard last at {_moment(held.last_tick)}"
    return f"{line}; {heard}, and it is rolled back at {ends} unless it goes on"


def _moment(tick: int) -> str:
    return moment(tick >> TICK_LOGICAL_BITS)
