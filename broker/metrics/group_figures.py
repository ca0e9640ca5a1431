"""Metrics of consumer groups: sums over those of a pchannel, and figures of single ones.

Programs name groups freely, so only so many have series of their own: those furthest behind.
"""

from collections.abc import Callable, Iterator
from typing import Final

from broker.core.groups.schedule_name import SCHEDULE
from broker.metrics.table import Metric, Read, Sample
from broker.metrics.view import View
from broker.model.groups.consumer_group import GroupLag, GroupView, MemberView
from broker.model.groups.unsettled import FirstUnsettled
from broker.node.state.open_channels import OpenChannel

CHANNEL: Final = ("channel",)
GROUP: Final = ("channel", "vchannel", "group")


def _each(read: Callable[[OpenChannel], float]) -> Read:
    def samples(view: View) -> Iterator[Sample]:
        for channel in view.channels:
            yield (channel.channel.name,), read(channel)

    return samples


def _running(channel: OpenChannel) -> list[GroupView]:
    return [it.describe() for it in channel.groups.running.values()]


def _members(channel: OpenChannel) -> list[MemberView]:
    return [member for view in _running(channel) for member in view.members]


def _group(read: Callable[[GroupView], float | None]) -> Read:
    """One sample for each of the groups that are shown; none where it is not known."""

    def samples(view: View) -> Iterator[Sample]:
        for name, group in view.groups:
            value = read(group)
            if value is not None:
                yield (name, group.group.key.vchannel, group.group.key.name), value

    return samples


def _lag(read: Callable[[GroupLag], float]) -> Read:
    return _group(lambda it: None if it.lag is None else read(it.lag))


def _first(read: Callable[[FirstUnsettled], float]) -> Read:
    return _group(lambda it: None if it.first is None else read(it.first))


def _held_seconds(view: View) -> Iterator[Sample]:
    for channel in view.channels:
        # The id of a transaction is the tick of its begin.
        oldest = min(channel.groups.table.holding, default=0)
        yield (channel.channel.name,), view.lag_s(oldest) if oldest else 0.0


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
        "group_lag_messages", "gauge",
        "Messages above the position of a group on a vchannel, with those acknowledged there;"
        " counted every 5 s. As all metrics with the label `group`: of the 1,000 furthest behind.",
        GROUP, _lag(lambda it: it.messages),
    ),
    Metric(
        "group_lag_bytes", "gauge", "Stored bytes of these messages.", GROUP,
        _lag(lambda it: it.bytes),
    ),
    Metric(
        "group_lag_seconds", "gauge",
        "Age of the position of a group on a vchannel; 0 when nothing is left.", GROUP,
        _lag(lambda it: it.ms / 1000),
    ),
    Metric(
        "group_redelivered_batches_total", "counter",
        "Batches that a group delivered again since its pchannel is open here.", GROUP,
        _group(lambda it: it.redelivered),
    ),
    Metric(
        "group_dead_messages_total", "counter",
        "Messages copied to the dead letters of a group since its pchannel is open here.", GROUP,
        _group(lambda it: it.dead),
    ),
    Metric(
        "group_expired_messages_total", "counter",
        "Messages that a group passed over as their time to live had ended, since its pchannel is"
        " open here.", GROUP,
        _group(lambda it: it.expired),
    ),
    Metric(
        "group_first_unsettled_seconds", "gauge",
        "How long ago the oldest unsettled message of an ordered group was delivered first.", GROUP,
        _first(lambda it: it.first_s or 0.0),
    ),
    Metric(
        "group_blocked_messages", "gauge",
        "Messages of the same key, or vchannel, that wait behind it.", GROUP,
        _first(lambda it: it.behind),
    ),
    Metric(
        "group_full", "gauge",
        "1 while an ordered group delivers nothing new, as it has too many unsettled messages;"
        " `tidemark group describe` names the key.", GROUP,
        _first(lambda it: it.full),
    ),
    Metric(
        "group_held_seconds", "gauge",
        "Age of the oldest open transaction that has acknowledged messages of a group.", CHANNEL,
        _held_seconds,
    ),
    Metric(
        "group_dying_batches", "gauge",
        "Batches whose copies in the dead letters are not written yet.", CHANNEL,
        _each(lambda it: sum([len(state.dying) for state in it.groups.table.groups.values()])),
    ),
    Metric(
        "group_dead_letters_failing", "gauge",
        "Groups whose dead letters cannot be written; `tidemark group describe` says why.", CHANNEL,
        _each(lambda it: len(it.groups.troubles)),
    ),
    Metric(
        "group_delayed_messages", "gauge", "Delayed messages that are not due yet.", CHANNEL,
        _each(lambda it: sum(it.groups.scheduled.values())),
    ),
)  # fmt: skip
