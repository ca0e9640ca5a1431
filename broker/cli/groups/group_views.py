"""What `tidemark group` prints."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from broker.cli.counted import counted
from broker.cli.groups.group_settings import GroupSettings
from broker.cli.groups.member_states import (
    member_state,
    mode_text,
    owned_text,
    seen_of,
    total_lag,
)
from broker.cli.groups.unsettled_lines import stuck_text, unsettled_lines
from broker.cli.session import with_client
from broker.cli.show.figures import size_text, span_text
from broker.cli.show.output import TICK_LOGICAL_BITS, print_json, show, show_fitted
from broker.cli.show.tables import Column, moment
from broker.cli.start_text import place_of
from broker.client import Client
from broker.client.groups.consumer_group import LEASE_S
from broker.client.groups.group_calls import GroupStart
from broker.model.groups.consumer_group import GroupLag, GroupView
from broker.model.groups.group_mode import GroupMode


def create_group(
    server: str, target: str, name: str, start: str, settings: GroupSettings, *, exist_ok: bool
) -> None:
    """Create the group, and say on how many vchannels."""
    place = _place(start, "--from")

    async def create(client: Client) -> Sequence[GroupView]:
        group = client.group(name, mode=settings.mode, by=settings.by)
        return await group.create(
            target,
            start=place,
            lease_s=LEASE_S if settings.lease_s is None else settings.lease_s,
            deliveries_max=settings.deliveries_max,
            exist_ok=exist_ok,
        )

    found = with_client(server, create)
    show(f"group {name} is on {counted(len(found), 'vchannel')} of {target}")


def alter_group(server: str, target: str, name: str, settings: GroupSettings) -> None:
    """Change the group, and say how it is now."""

    async def alter(client: Client) -> Sequence[GroupView]:
        group = client.group(name)
        return await group.alter(
            target, lease_s=settings.lease_s, deliveries_max=settings.deliveries_max
        )

    group = with_client(server, alter)[0].group
    limit = "no limit" if group.limit is None else f"at most {group.limit.deliveries_max}"
    show(f"group {name}: leases of {group.lease_ms / 1000:g} s, {limit} of deliveries")


def seek_group(server: str, target: str, name: str, to: str) -> None:
    """Seek the group, and show where it is now."""
    place = _place(to, "seek to")
    found = with_client(server, lambda client: client.group(name).seek(target, place))
    show_fitted(_positions(found))


def drop_group(server: str, target: str, name: str) -> None:
    """Drop the group."""
    with_client(server, lambda client: client.group(name).drop(target))
    show(f"dropped group {name} of {target}")


def list_groups(server: str, target: str, most: int | None, *, as_json: bool) -> None:
    """Print one row for each group; of the first `most` on vchannels, if that is a limit."""
    found = with_client(server, lambda client: client.groups.list(target, most=most))
    names = sorted({it.group.key.name for it in found})
    by_name = [[it for it in found if it.group.key.name == name] for name in names]
    if as_json:
        return print_json([_fields(it) for it in found])
    members = [_members(views) for views in by_name]
    show_fitted(
        [
            Column("group", names),
            Column("vchannels", [str(len(it)) for it in by_name]),
            Column("mode", [mode_text(it[0].group.mode) for it in by_name], leaves=5),
            Column("position", [_moment(min(_floors(it))) for it in by_name]),
            Column("members", [str(len(it)) for it in members]),
            Column("batches out", [str(_leases(it)) for it in by_name]),
            Column("behind", [_lag(it, lambda lag: f"{lag.messages:,}") for it in by_name]),
            Column("holds", [_lag(it, lambda lag: size_text(lag.bytes)) for it in by_name]),
            Column("idle", [_idle(it) for it in by_name]),
            Column("redelivered", [_sum(it, "redelivered") for it in by_name], leaves=3),
            Column("dying", [_dying(it) for it in by_name], leaves=2),
            Column("dead", [_sum(it, "dead") for it in by_name], leaves=4),
            *_stuck(by_name),
            Column("who", [", ".join(it) or "-" for it in members], leaves=1),
        ]
    )
    return None


def describe_group(server: str, target: str, name: str, *, as_json: bool) -> None:
    """Print one row for each vchannel, and one for each member on it."""
    found = with_client(server, lambda client: client.group(name).describe(target))
    if as_json:
        return print_json([_fields(it) for it in found])
    show_fitted(_positions(found))
    for view in found:
        if view.trouble:
            show(f"{view.group.key.vchannel}: {view.trouble}")
        for line in unsettled_lines(view):
            show(line)
    rows = [(view, member) for view in found for member in view.members]
    mode = found[0].group.mode
    if mode is not GroupMode.SHARED:
        show(f"group {name} is {mode_text(mode)}")
    if not rows:
        return show(f"group {name} has no members")
    owns = [owned_text(view, member) for view, member in rows]
    owned = [] if mode is GroupMode.SHARED else [Column("owns", owns)]
    show_fitted(
        [
            Column("member", [member.name for _, member in rows]),
            *owned,
            Column("vchannel", [view.group.key.vchannel for view, _ in rows], leaves=1),
            Column("state", [member_state(view, member) for view, member in rows]),
            Column("batches out", [str(member.leases) for _, member in rows]),
            Column("oldest s", [f"{member.oldest_s:.1f}" for _, member in rows]),
        ]
    )
    return None


def show_lag(server: str, target: str, name: str, *, as_json: bool) -> None:
    """Print one row for each vchannel, and the sum."""
    found = with_client(server, lambda client: client.group(name).lag(target))
    if as_json:
        return print_json(
            [
                {"vchannel": it, "messages": lag.messages, "bytes": lag.bytes, "ms": lag.ms}
                for it, lag in found.items()
            ]
        )
    lags = list(found.values())
    total = GroupLag(
        sum([it.messages for it in lags]),
        sum([it.bytes for it in lags]),
        max([it.ms for it in lags], default=0),
    )
    lags.append(total)
    show_fitted(
        [
            Column("vchannel", [*found, "all"]),
            Column("messages", [f"{it.messages:,}" for it in lags]),
            Column("bytes", [size_text(it.bytes) for it in lags]),
            Column("behind ms", [f"{it.ms:,}" for it in lags]),
        ]
    )
    return None


def _place(text: str, option: str) -> GroupStart:
    place = place_of(text, option, ids=False)
    assert not isinstance(place, int)
    return place


def _positions(found: Sequence[GroupView]) -> list[Column]:
    groups = [it.group for it in found]
    return [
        Column("vchannel", [it.key.vchannel for it in groups]),
        Column("acknowledged up to", [_moment(it.floor) for it in groups]),
        Column("tick", [str(it.floor) for it in groups], leaves=1),
        Column("ranges above", [str(len(it.acked)) for it in groups]),
        Column("lease s", [f"{it.lease_ms / 1000:g}" for it in groups], leaves=2),
        Column("redelivered", [str(it.redelivered) for it in found]),
    ]


def _members(views: Sequence[GroupView]) -> list[str]:
    return sorted({member.name for view in views for member in view.members})


def _dying(views: Sequence[GroupView]) -> str:
    """What is not in the dead letters yet, and that something is wrong with them."""
    count = sum([len(view.group.dying) for view in views])
    return f"{count} (failing)" if any(view.trouble for view in views) else str(count)


def _stuck(by_name: Sequence[Sequence[GroupView]]) -> list[Column]:
    """What keeps ordered groups from going on; no column while nothing does."""
    texts = [stuck_text(it) for it in by_name]
    return [Column("stuck", [it or "-" for it in texts])] if any(texts) else []


def _sum(views: Sequence[GroupView], figure: str) -> str:
    return f"{sum([getattr(it, figure) for it in views]):,}"


def _lag(views: Sequence[GroupView], text: Callable[[GroupLag], str]) -> str:
    lag = total_lag(views)
    return "-" if lag is None else text(lag)


def _idle(views: Sequence[GroupView]) -> str:
    """Since when nobody was there; by the local clock, which may be behind the broker's."""
    seen = seen_of(views)
    now_ms = datetime.now(UTC).timestamp() * 1000
    return span_text(max(0.0, (now_ms - (seen >> TICK_LOGICAL_BITS)) / 1000)) if seen else "-"


def _floors(views: Sequence[GroupView]) -> list[int]:
    return [it.group.floor for it in views]


def _leases(views: Sequence[GroupView]) -> int:
    return sum([member.leases for view in views for member in view.members])


def _moment(tick: int) -> str:
    return moment(tick >> TICK_LOGICAL_BITS) if tick else "the beginning"


def _fields(view: GroupView) -> dict[str, Any]:
    group, lag, first = view.group, view.lag, view.first
    return {
        "group": group.key.name,
        "vchannel": group.key.vchannel,
        "floor": group.floor,
        "acked": [[it.after, it.upto] for it in group.acked],
        "lease_ms": group.lease_ms,
        "redelivered": view.redelivered,
        "mode": group.mode.value,
        "deliveries_max": None if group.limit is None else group.limit.deliveries_max,
        "dying": len(group.dying),
        "trouble": view.trouble,
        "dead": view.dead,
        "expired": view.expired,
        "seen_tick": view.seen,
        "lag": lag and {"messages": lag.messages, "bytes": lag.bytes, "ms": lag.ms},
        "first_unsettled": first and {**asdict(first), "state": first.state.name.lower()},
        "held": [asdict(it) for it in view.held],
        "members": [
            {
                "name": it.name,
                "state": member_state(view, it),
                "batches": it.leases,
                "oldest_ms": round(it.oldest_s * 1000),
                "owns": it.owns,
                "ran_out": it.ran_out,
            }
            for it in view.members
        ],
    }
