"""A consumer group as fields of its record."""

from collections.abc import Mapping
from typing import Any

from broker.core.groups.group_changes import limit_fields, read_limit, read_spans, span_pairs
from broker.model.groups.consumer_group import DyingSpans, GroupKey, GroupSnapshot, TriedSpans
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick


def group_fields(group: GroupSnapshot) -> dict[str, Any]:
    """What the record holds."""
    return {
        "vchannel": group.key.vchannel,
        "name": group.key.name,
        **_lease_fields(group),
        "floor": group.floor,
        "acked": span_pairs(group.acked),
        "created_tick": group.created_tick,
        "tick": group.tick,
        **_limit_fields(group),
    }


def read_group(fields: Mapping[str, Any]) -> GroupSnapshot:
    """The group; raises what bad fields raise."""
    return GroupSnapshot(
        key=GroupKey(fields["vchannel"], fields["name"]),
        lease_ms=fields["ordered_lease_ms" if "by" in fields else "lease_ms"],
        floor=TimeTick(fields["floor"]),
        acked=read_spans(fields["acked"]),
        created_tick=TimeTick(fields["created_tick"]),
        tick=TimeTick(fields["tick"]),
        limit=read_limit(fields.get("limit")),
        tried=tuple(TriedSpans(n, read_spans(it)) for n, it in fields.get("tried", ())),
        dying=tuple(
            DyingSpans(read_spans(spans), cause, times, TimeTick(since))
            for spans, cause, times, since in fields.get("dying", ())
        ),
        mode=GroupMode(fields.get("by", GroupMode.SHARED)),
    )


def _lease_fields(group: GroupSnapshot) -> dict[str, Any]:
    """An earlier release must not share messages that are to come in order, so it finds no lease.

    It reports the record as damaged, and has no such group.
    """
    if group.mode is GroupMode.SHARED:
        return {"lease_ms": group.lease_ms}
    return {"ordered_lease_ms": group.lease_ms, "by": group.mode}


def _limit_fields(group: GroupSnapshot) -> dict[str, Any]:
    if group.limit is None:
        return {}
    return {
        "limit": limit_fields(group.limit),
        "tried": [[each.times, span_pairs(each.spans)] for each in group.tried],
        "dying": [
            [span_pairs(each.spans), each.cause, each.times, each.since] for each in group.dying
        ],
    }
