"""Metrics of consumer groups, summed over those of a pchannel, as programs name groups freely."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.core.groups.schedule_name import SCHEDULE
from broker.metrics.table import Metric, Read, Sample
from broker.metrics.view import View
from broker.model.groups.consumer_group import GroupView, MemberView
from broker.node.state.open_channels import OpenChannel

CHANNEL: Final = ("channel",)


def _each(read: Callable[[OpenChannel], float]) -> Read:
    def samples(view: View) -> Iterator[Sample]:
        for channel in view.channels:
            yield (channel.channel.name,), read(channel)

    return samples


def _running(channel: OpenChannel) -> list[GroupView]:
    return [it.describe() for it in channel.groups.running.values()]


def _members(channel: OpenChannel) -> list[MemberView]:
    return [member for view in _running(channel) for member in view.members]


GROUP_METRICS: Final = (
    Metric(
        "groups", "gauge", "Consumer groups; of a collection one for each of its vchannels.",
        CHANNEL,
        _each(lambda it: sum([key.name != SCHEDULE for key in it.groups.table.groups])),
    ),
    Metric(
        "group_members", "gauge", "Members of consumer groups.", CHANNEL,
        _each(lambda it: len(_members(it))),
    ),
    Metric(
        "group_members_waiting", "gauge",
        "Members that have room for messages, and wait for some.", CHANNEL,
        _each(lambda it: sum([member.waiting for member in _members(it)])),
    ),
    Metric(
        "group_leased_batches", "gauge", "Batches that members have and did not acknowledge.",
        CHANNEL, _each(lambda it: sum([member.leases for member in _members(it)])),
    ),
    Metric(
        "group_oldest_lease_seconds", "gauge",
        "Age of the oldest batch that a member has and did not acknowledge.", CHANNEL,
        _each(lambda it: max([member.oldest_s for member in _members(it)], default=0.0)),
    ),
    Metric(
        "group_redelivered_batches", "gauge",
        "Batches delivered again by the groups that run now, since each of them started.", CHANNEL,
        _each(lambda it: sum([view.redelivered for view in _running(it)])),
    ),
    Metric(
        "group_delayed_messages", "gauge", "Delayed messages that are not due yet.", CHANNEL,
        _each(lambda it: sum(it.groups.scheduled.values())),
    ),
)  # fmt: skip
