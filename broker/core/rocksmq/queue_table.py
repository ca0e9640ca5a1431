"""All channels and groups of a queue, and drafts of their next state with the writes it takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from broker.core.rocksmq import queue_channel, queue_keys
from broker.core.rocksmq.page_retention import PageRules, swept
from broker.core.rocksmq.queue_channel import QueueChannel, QueuePage
from broker.core.rocksmq.queue_keys import (
    ChannelField,
    GroupField,
    PageField,
    PositionField,
    number,
)
from broker.core.rocksmq.queue_rules import EARLIEST
from broker.model.rocksmq.ordered_writes import OrderedWrite, Put, Remove, RemoveRange
from broker.model.rocksmq.queue_refusal import QueueFault, QueueRefusal

EMPTY = QueueChannel()


@dataclass(slots=True)
class QueueTable:
    """What is stored: channels with their groups, and groups that were made without a channel."""

    channels: dict[str, QueueChannel] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


def loaded(entries: Iterable[tuple[bytes, bytes]]) -> QueueTable | bytes:
    """The table of all stored metadata; else the first key that no release has written."""
    table = QueueTable()
    for key, data in entries:
        if key == queue_keys.ID_BOUND_KEY:
            continue
        field_of = queue_keys.parsed(key)
        if field_of is None:
            return key
        match field_of:
            case ChannelField(name, attribute):
                old = table.channels.get(name, EMPTY)
                table.channels[name] = _with_field(old, attribute, int(data))
            case PageField(name, end_id):
                old = table.channels.get(name, EMPTY)
                pages = (*old.pages, _page(end_id, data))
                table.channels[name] = replace(old, pages=pages)
            case PositionField(group, name):
                old = table.channels.get(name, EMPTY)
                table.channels[name] = queue_channel.with_position(old, group, int(data))
            case GroupField(group):
                table.groups.add(group)
            case _:
                assert_never(field_of)
    return table


class QueueDraft:
    """The next state of a table. Calls change the draft alone; a refused one changes nothing.

    Write `writes()` as one atomic batch, then call `apply`; drop the draft when the write failed.
    """

    def __init__(self, table: QueueTable, page_bytes: int) -> None:
        self._table, self._page_bytes = table, page_bytes
        self._channels: dict[str, QueueChannel | None] = {}
        self._groups: dict[str, bool] = {}
        self._data: list[OrderedWrite] = []

    def channel(self, name: str) -> QueueChannel | None:
        """A channel as it will be."""
        if name in self._channels:
            return self._channels[name]
        return self._table.channels.get(name)

    def group(self, name: str) -> bool:
        """Whether the group is one that was made without a channel."""
        return self._groups.get(name, name in self._table.groups)

    def create_channel(self, name: str) -> QueueRefusal | None:
        """Add an empty channel."""
        if self.channel(name) is not None:
            told = f"channel {name!r} exists already; use it, or destroy it first"
            return QueueRefusal(QueueFault.CHANNEL_EXISTS, told)
        self._channels[name] = EMPTY
        return None

    def destroy_channel(self, name: str) -> QueueRefusal | None:
        """Remove a channel with its messages and the positions of its groups."""
        if self.channel(name) is None:
            return no_channel(name)
        self._channels[name] = None
        begin, end = queue_keys.data_prefix(name), queue_keys.data_end(name)
        self._data.append(RemoveRange(begin, end))
        return None

    def create_group(self, group: str, channel: str | None) -> QueueRefusal | None:
        """Add a group at the first message of a channel; without a channel, for all of them."""
        if channel is None:
            if self.group(group):
                return _group_exists(f"consumer group {group!r}")
            self._groups[group] = True
            return None
        state = self.channel(channel)
        if state is None:
            return no_channel(channel)
        if group in state.positions:
            return _group_exists(f"consumer group {group!r} of channel {channel!r}")
        self._channels[channel] = queue_channel.with_position(state, group, EARLIEST)
        return None

    def attach(self, group: str, channel: str) -> QueueRefusal | None:
        """Add a group that was made without a channel to this one, if it is not there yet."""
        state = self.channel(channel)
        if state is None:
            return no_channel(channel)
        if group in state.positions:
            return None
        if not self.group(group):
            return no_group(group, channel)
        return self.create_group(group, channel)

    def destroy_group(self, group: str, channel: str | None) -> QueueRefusal | None:
        """Remove a group from a channel; without a channel, from all of them."""
        if channel is None:
            return self._destroy_everywhere(group)
        state = self.channel(channel)
        if state is None:
            return no_channel(channel)
        if group not in state.positions:
            return no_group(group, channel)
        self._channels[channel] = queue_channel.without_group(state, group)
        return None

    def _destroy_everywhere(self, group: str) -> QueueRefusal | None:
        there = False
        for name in {**self._table.channels, **self._channels}:
            state = self.channel(name)
            if state is not None and group in state.positions:
                self._channels[name] = queue_channel.without_group(state, group)
                there = True
        if self.group(group):
            self._groups[group] = False
            there = True
        if there:
            return None
        told = f"there is no consumer group {group!r}; create it first"
        return QueueRefusal(QueueFault.NO_GROUP, told)

    def append(self, name: str, first_id: int, payloads: Sequence[bytes]) -> QueueRefusal | None:
        """Add messages, with ids from `first_id` on."""
        state = self.channel(name)
        if state is None:
            return no_channel(name)
        refusal = queue_channel.ids_fault(name, state, first_id)
        if refusal is not None:
            return refusal
        sizes = [len(it) for it in payloads]
        self._channels[name] = queue_channel.appended(state, first_id, sizes, self._page_bytes)
        prefix, width = queue_keys.data_prefix(name), queue_keys.ID_BYTES
        for place, payload in enumerate(payloads, first_id):
            self._data.append(Put(prefix + place.to_bytes(width, "big"), payload))
        return None

    def set_position(self, group: str, channel: str, position: int) -> QueueRefusal | None:
        """Move a group to a position."""
        state = self.channel(channel)
        if state is None:
            return no_channel(channel)
        if group not in state.positions:
            return no_group(group, channel)
        if state.positions[group] != position:
            self._channels[channel] = queue_channel.with_position(state, group, position)
        return None

    def sweep(self, name: str, rules: PageRules, now_ms: int) -> bool:
        """Remove what retention removes from a channel; whether that was anything."""
        state = self.channel(name)
        if state is None:
            return False
        after = swept(state, rules, now_ms)
        if after is state:
            return False
        self._channels[name] = after
        if after.begin_id == state.begin_id:
            return False
        end = queue_keys.data_key(name, after.begin_id)
        self._data.append(RemoveRange(queue_keys.data_prefix(name), end))
        return True

    def writes(self) -> list[OrderedWrite]:
        """One atomic batch: messages, then metadata."""
        writes = list(self._data)
        for name, after in self._channels.items():
            writes += _changes(name, self._table.channels.get(name), after)
        for name, there in self._groups.items():
            key = queue_keys.group_key(name)
            writes.append(Put(key, b"") if there else Remove(key))
        return writes

    def apply(self) -> Mapping[str, QueueChannel | None]:
        """Make the draft the table's state; the channels that changed, None for removed ones."""
        for name, state in self._channels.items():
            if state is None:
                self._table.channels.pop(name, None)
            else:
                self._table.channels[name] = state
        for name, there in self._groups.items():
            (self._table.groups.add if there else self._table.groups.discard)(name)
        return self._channels


def no_channel(name: str) -> QueueRefusal:
    """The refusal of a call on an unknown channel."""
    told = f"there is no channel {name!r}; create it first"
    return QueueRefusal(QueueFault.NO_CHANNEL, told)


def no_group(group: str, channel: str) -> QueueRefusal:
    """The refusal of a call on an unknown group."""
    told = f"there is no consumer group {group!r} on channel {channel!r}; create it first"
    return QueueRefusal(QueueFault.NO_GROUP, told)


def _group_exists(what: str) -> QueueRefusal:
    told = f"{what} exists already; use it, or destroy it first"
    return QueueRefusal(QueueFault.GROUP_EXISTS, told)


def _changes(
    name: str, before: QueueChannel | None, after: QueueChannel | None
) -> list[OrderedWrite]:
    """The writes that turn the stored metadata of a channel into that of another state."""
    old, new = _stored(name, before, after), _stored(name, after, before)
    removed: list[OrderedWrite] = [Remove(key) for key in old if key not in new]
    changed = [Put(key, data) for key, data in new.items() if old.get(key) != data]
    return [*removed, *changed]


def _stored(name: str, it: QueueChannel | None, other: QueueChannel | None) -> dict[bytes, bytes]:
    """The metadata of a channel, without pages and positions that are those of the other state."""
    if it is None:
        return {}
    stored = {
        queue_keys.channel_key(name, "begin_id"): number(it.begin_id),
        queue_keys.channel_key(name, "end_id"): number(it.end_id),
        queue_keys.channel_key(name, "open_bytes"): number(it.open_bytes),
    }
    if other is None or other.pages is not it.pages:
        for page in it.pages:
            stored[queue_keys.page_key(name, page.end_id)] = _page_data(page)
    if other is None or other.positions is not it.positions:
        for group, position in it.positions.items():
            stored[queue_keys.position_key(group, name)] = number(position)
    return stored


def _with_field(channel: QueueChannel, attribute: str, value: int) -> QueueChannel:
    match attribute:
        case "begin_id":
            return replace(channel, begin_id=value)
        case "end_id":
            return replace(channel, end_id=value)
        case _:
            return replace(channel, open_bytes=value)


def _page(end_id: int, data: bytes) -> QueuePage:
    size, _, acked = data.partition(b" ")
    return QueuePage(end_id, int(size), int(acked) if acked else None)


def _page_data(page: QueuePage) -> bytes:
    if page.acked_ms is None:
        return number(page.size_bytes)
    return number(page.size_bytes) + b" " + number(page.acked_ms)
