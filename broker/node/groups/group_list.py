"""The groups of one pchannel as a list, a page at a time."""

from heapq import nsmallest

from broker.core.groups.schedule_name import SCHEDULE
from broker.model.groups.consumer_group import GroupKey, GroupView, listed_by
from broker.node.group_messages import ListGroups
from broker.node.state.channel_groups import ChannelGroups


def listed_groups(groups: ChannelGroups, wanted: ListGroups) -> tuple[GroupView, ...]:
    """By name and vchannel, behind the last one of the page before; no schedules."""
    vchannels, after = set(wanted.vchannels), wanted.after
    every = groups.table.groups
    if wanted.name and vchannels:
        # Not one look at each of thousands of groups for one of them.
        named = [GroupKey(vchannel, wanted.name) for vchannel in vchannels]
        keys = [key for key in named if key in every]
    else:
        keys = [
            key
            for key in every
            if (not vchannels or key.vchannel in vchannels) and wanted.name in ("", key.name)
        ]
    shown = [
        key
        for key in keys
        if key.name != SCHEDULE and (after is None or listed_by(key) > listed_by(after))
    ]
    listed = nsmallest(wanted.most, shown, listed_by)
    if wanted.brief:
        return tuple([GroupView(every[key].snapshot()) for key in listed])
    return tuple([groups.view(key) for key in listed])
