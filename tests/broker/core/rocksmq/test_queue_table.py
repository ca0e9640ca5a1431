"""The table against a naive model, whose stored bytes are always read back as the same table."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.rocksmq import queue_keys
from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_table import QueueDraft, QueueTable, loaded
from broker.model.rocksmq.ordered_writes import OrderedWrite, Put, Remove
from broker.model.rocksmq.queue_refusal import QueueFault, QueueRefusal

RULES = PageRules(page_bytes=20, age_ms_max=10, size_bytes_max=50)


@dataclass
class Bytes:
    """A store as a dictionary."""

    entries: dict[bytes, bytes] = field(default_factory=dict)

    def write(self, writes: list[OrderedWrite]) -> None:
        for it in writes:
            if isinstance(it, Put):
                self.entries[it.key] = it.data
            elif isinstance(it, Remove):
                self.entries.pop(it.key, None)
            else:
                for key in [key for key in self.entries if it.begin <= key < it.end]:
                    del self.entries[key]

    def table(self) -> QueueTable:
        found = loaded(sorted(it for it in self.entries.items() if it[0].startswith(b"meta/")))
        assert isinstance(found, QueueTable)
        return found

    def messages(self, channel: str) -> dict[int, bytes]:
        begin, end = queue_keys.data_prefix(channel), queue_keys.data_end(channel)
        within = {key: data for key, data in self.entries.items() if begin <= key < end}
        return {queue_keys.id_of(key): data for key, data in within.items()}


@dataclass
class NaiveQueue:
    """Channels as lists of messages; a refusal is the kind of fault."""

    messages: dict[str, dict[int, bytes]] = field(default_factory=dict)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    everywhere: set[str] = field(default_factory=set)

    def create_channel(self, name: str) -> QueueFault | None:
        if name in self.messages:
            return QueueFault.CHANNEL_EXISTS
        self.messages[name], self.groups[name] = {}, {}
        return None

    def destroy_channel(self, name: str) -> QueueFault | None:
        if name not in self.messages:
            return QueueFault.NO_CHANNEL
        del self.messages[name], self.groups[name]
        return None

    def create_group(self, group: str, channel: str | None) -> QueueFault | None:
        if channel is None:
            fault = QueueFault.GROUP_EXISTS if group in self.everywhere else None
            self.everywhere.add(group)
            return fault
        if channel not in self.messages:
            return QueueFault.NO_CHANNEL
        if group in self.groups[channel]:
            return QueueFault.GROUP_EXISTS
        self.groups[channel][group] = -1
        return None

    def attach(self, group: str, channel: str) -> QueueFault | None:
        if channel not in self.messages:
            return QueueFault.NO_CHANNEL
        if group not in self.groups[channel] and group not in self.everywhere:
            return QueueFault.NO_GROUP
        self.groups[channel].setdefault(group, -1)
        return None

    def destroy_group(self, group: str, channel: str | None) -> QueueFault | None:
        if channel is not None and channel not in self.messages:
            return QueueFault.NO_CHANNEL
        there = channel is None and group in self.everywhere
        if channel is None:
            self.everywhere.discard(group)
        for groups in self.groups.values() if channel is None else [self.groups[channel]]:
            there |= groups.pop(group, None) is not None
        return None if there else QueueFault.NO_GROUP

    def append(self, name: str, first_id: int, payloads: list[bytes]) -> QueueFault | None:
        if name not in self.messages:
            return QueueFault.NO_CHANNEL
        self.messages[name].update(enumerate(payloads, first_id))
        return None

    def set_position(self, group: str, channel: str, position: int) -> QueueFault | None:
        if channel not in self.messages:
            return QueueFault.NO_CHANNEL
        if group not in self.groups[channel]:
            return QueueFault.NO_GROUP
        self.groups[channel][group] = position
        return None


NAMES = ("a", "aa")
CHANNELS = st.sampled_from(NAMES)
GROUPS = st.sampled_from(["a", "page"])
PAYLOADS = st.lists(st.binary(max_size=12), min_size=1, max_size=5)
CALLS = st.one_of(
    st.tuples(st.just("create_channel"), CHANNELS),
    st.tuples(st.just("destroy_channel"), CHANNELS),
    st.tuples(st.just("create_group"), GROUPS, st.none() | CHANNELS),
    st.tuples(st.just("attach"), GROUPS, CHANNELS),
    st.tuples(st.just("destroy_group"), GROUPS, st.none() | CHANNELS),
    st.tuples(st.just("append"), CHANNELS, PAYLOADS),
    st.tuples(st.just("append"), CHANNELS, PAYLOADS),
    st.tuples(st.just("set_position"), GROUPS, CHANNELS, st.integers(-1, 60)),
    st.tuples(st.just("sweep"), CHANNELS, st.integers(0, 100)),
)
BATCHES = st.lists(
    st.tuples(st.lists(CALLS, min_size=1, max_size=8), st.sampled_from([False, False, True])),
    min_size=1,
    max_size=8,
)


@dataclass
class Played:
    """The real table over a store, and the naive one."""

    table: QueueTable = field(default_factory=QueueTable)
    store: Bytes = field(default_factory=Bytes)
    naive: NaiveQueue = field(default_factory=NaiveQueue)
    next_id: int = 8

    def call(self, draft: QueueDraft, naive: NaiveQueue, call: tuple[object, ...]) -> None:
        method, *arguments = call
        if method == "append":
            arguments.insert(1, self.next_id)
            self.next_id += 7
        if method == "sweep":
            name, now_ms = arguments
            draft.sweep(str(name), RULES, int(str(now_ms)))
            state = draft.channel(str(name))
            if state is not None:  # what is removed is decided elsewhere; here it must be gone
                kept = naive.messages[str(name)]
                for msg_id in [it for it in kept if it < state.begin_id]:
                    del kept[msg_id]
            return
        refusal: QueueRefusal | None = getattr(draft, str(method))(*arguments)
        wanted: QueueFault | None = getattr(naive, str(method))(*arguments)
        assert (refusal.fault if refusal else None) == wanted
        if refusal is not None:
            assert any(repr(it) in refusal.cause for it in arguments)

    def check(self) -> None:
        assert self.store.table() == self.table
        assert self.table.groups == self.naive.everywhere
        assert {name: dict(it.positions) for name, it in self.table.channels.items()} == (
            self.naive.groups
        )
        for name in NAMES:
            assert self.store.messages(name) == self.naive.messages.get(name, {})


def made(*channels: str) -> Played:
    played = Played()
    draft = QueueDraft(played.table, RULES.page_bytes)
    for name in channels:
        draft.create_channel(name)
        played.naive.create_channel(name)
    played.store.write(draft.writes())
    draft.apply()
    return played


@given(BATCHES)
def test_any_calls_store_what_a_naive_queue_has_and_a_dropped_draft_changes_nothing(
    batches: list[tuple[list[tuple[object, ...]], bool]],
) -> None:
    played = made(*NAMES)
    for calls, fails in batches:
        draft = QueueDraft(played.table, RULES.page_bytes)
        before = NaiveQueue(
            {name: dict(it) for name, it in played.naive.messages.items()},
            {name: dict(it) for name, it in played.naive.groups.items()},
            set(played.naive.everywhere),
        )
        for call in calls:
            played.call(draft, played.naive, call)
        if fails:
            draft.writes()
            played.naive = before
        else:
            played.store.write(draft.writes())
            draft.apply()
        played.check()


def test_a_sweep_says_whether_messages_are_gone() -> None:
    played = made("a")
    draft = QueueDraft(played.table, RULES.page_bytes)
    draft.append("a", 1, [b"x" * 15] * 4)
    draft.create_group("g", "a")
    assert not draft.sweep("a", RULES, 0)
    assert not draft.sweep("b", RULES, 0)
    draft.set_position("g", "a", 3)
    assert not draft.sweep("a", RULES, 0), "read by all, and neither old nor too much"
    found = draft.channel("a")
    assert found is not None
    assert found.pages[0].acked_ms == 0
    kept = made("a")
    kept.store.write(draft.writes())
    assert kept.store.table().channels["a"] == found, "when it was read by all is stored"
    assert draft.sweep("a", RULES, 10)
    played.store.write(draft.writes())
    assert sorted(played.store.messages("a")) == [3, 4]


def test_an_unchanged_position_is_not_written() -> None:
    played = made("a")
    draft = QueueDraft(played.table, RULES.page_bytes)
    draft.create_group("g", "a")
    draft.apply()
    again = QueueDraft(played.table, RULES.page_bytes)
    assert again.set_position("g", "a", -1) is None
    assert again.writes() == []


def test_a_produce_writes_messages_and_what_changed_of_the_metadata_and_no_more() -> None:
    played = made("a")
    first = QueueDraft(played.table, RULES.page_bytes)
    first.create_group("g", "a")
    first.append("a", 5, [b"x" * 30])
    first.apply()
    draft = QueueDraft(played.table, RULES.page_bytes)
    draft.append("a", 6, [b"y"])
    assert draft.writes() == [
        Put(queue_keys.data_key("a", 6), b"y"),
        Put(b"meta/a/end_id", b"7"),
        Put(b"meta/a/open_bytes", b"1"),
    ]


def test_a_destroyed_channel_removes_its_groups_and_pages_but_not_those_of_a_longer_name() -> None:
    played = made("a", "aa")
    draft = QueueDraft(played.table, RULES.page_bytes)
    for name in ("a", "aa"):
        draft.append(name, 5, [b"x" * 30])
        draft.create_group("g", name)
    played.store.write(draft.writes())
    draft.apply()
    gone = QueueDraft(played.table, RULES.page_bytes)
    gone.destroy_channel("a")
    played.store.write(gone.writes())
    assert sorted(played.store.entries) == [
        queue_keys.data_key("aa", 5),
        b"meta/aa/begin_id",
        b"meta/aa/end_id",
        b"meta/aa/open_bytes",
        b"meta/aa/page/%020d" % 5,
        b"meta/g/aa/current_id",
    ]


def test_a_channel_that_is_made_again_in_the_same_batch_has_nothing_of_the_old_one() -> None:
    played = made("a")
    draft = QueueDraft(played.table, RULES.page_bytes)
    draft.append("a", 5, [b"x" * 30])
    draft.create_group("g", "a")
    played.store.write(draft.writes())
    draft.apply()
    again = QueueDraft(played.table, RULES.page_bytes)
    again.destroy_channel("a")
    again.create_channel("a")
    played.store.write(again.writes())
    again.apply()
    assert played.store.table() == played.table == made("a").table
    assert played.store.messages("a") == {}


@pytest.mark.parametrize("key", [b"meta/x", b"meta/c/start_id"])
def test_metadata_that_no_release_has_written_is_named(key: bytes) -> None:
    bound = (queue_keys.ID_BOUND_KEY, b"5")
    assert loaded([bound, (key, b"1")]) == key
    assert loaded([bound]) == QueueTable()


def test_what_is_there_or_is_not_is_refused_and_named() -> None:
    played = made("a")
    draft = QueueDraft(played.table, RULES.page_bytes)
    refusals = [
        (draft.create_channel("a"), "channel 'a' exists"),
        (draft.destroy_channel("x"), "no channel 'x'"),
        (draft.create_group("g", "x"), "no channel 'x'"),
        (draft.attach("g", "x"), "no channel 'x'"),
        (draft.attach("g", "a"), "no consumer group 'g' on channel 'a'"),
        (draft.destroy_group("g", "x"), "no channel 'x'"),
        (draft.destroy_group("g", "a"), "no consumer group 'g' on channel 'a'"),
        (draft.destroy_group("g", None), "no consumer group 'g'"),
        (draft.append("x", 1, [b""]), "no channel 'x'"),
        (draft.append("a", 0, [b""]), "the IDAllocator gave 0"),
        (draft.set_position("g", "x", 1), "no channel 'x'"),
        (draft.set_position("g", "a", 1), "no consumer group 'g' on channel 'a'"),
    ]
    assert draft.writes() == []
    for refusal, told in refusals:
        assert refusal is not None
        assert told in refusal.cause


def test_a_group_made_without_a_channel_joins_each_at_its_first_use_and_leaves_all() -> None:
    played = made("a", "b", "c")
    draft = QueueDraft(played.table, RULES.page_bytes)
    assert draft.create_group("g", None) is None
    again = draft.create_group("g", None)
    assert again is not None
    assert again.fault is QueueFault.GROUP_EXISTS
    assert draft.attach("g", "a") is None
    assert draft.attach("g", "a") is None
    assert draft.attach("g", "b") is None
    twice = draft.create_group("g", "b")
    assert twice is not None
    assert "'g' of channel 'b' exists" in twice.cause
    played.store.write(draft.writes())
    draft.apply()
    assert played.store.table().groups == {"g"}
    gone = QueueDraft(played.table, RULES.page_bytes)
    assert gone.destroy_group("g", "b") is None
    assert gone.destroy_channel("c") is None
    assert gone.destroy_group("g", None) is None
    assert gone.destroy_group("g", None) is not None
    played.store.write(gone.writes())
    gone.apply()
    assert played.store.table() == played.table == made("a", "b").table
