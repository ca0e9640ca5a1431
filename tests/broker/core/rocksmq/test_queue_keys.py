"""Keys: ordered as ids are, never another's, and read back as they were written."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.rocksmq import queue_keys as keys
from broker.core.rocksmq.queue_rules import name_fault

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name_fault("channel", name) is None)
TRICKY = st.sampled_from(["a", "aa", "a0", "page", "group", "begin_id", "current_id", "data", "0"])
IDS = st.integers(0, 2**63 - 1)


@given(NAMES | TRICKY, IDS, IDS)
def test_keys_of_messages_are_ordered_as_their_ids_however_many_digits_they_have(
    name: str, one: int, other: int
) -> None:
    assert (keys.data_key(name, one) < keys.data_key(name, other)) == (one < other)
    assert keys.id_of(keys.data_key(name, one)) == one


@given(NAMES | TRICKY, NAMES | TRICKY, IDS)
def test_the_range_of_a_channel_has_its_messages_and_no_others(
    name: str, other: str, msg_id: int
) -> None:
    key = keys.data_key(other, msg_id)
    assert (keys.data_prefix(name) <= key < keys.data_end(name)) == (name == other)
    assert not keys.META <= key < keys.META_END


@given(NAMES | TRICKY, NAMES | TRICKY, IDS)
def test_every_key_of_the_metadata_is_read_back_as_what_it_was_written_for(
    channel: str, group: str, end_id: int
) -> None:
    for field in ("begin_id", "end_id", "open_bytes"):
        written = keys.channel_key(channel, field)
        assert keys.parsed(written) == keys.ChannelField(channel, field)
    assert keys.parsed(keys.page_key(channel, end_id)) == keys.PageField(channel, end_id)
    position = keys.PositionField(group, channel)
    assert keys.parsed(keys.position_key(group, channel)) == position
    assert keys.parsed(keys.group_key(group)) == keys.GroupField(group)


def test_pages_of_a_channel_are_listed_in_the_order_of_their_ids() -> None:
    assert keys.page_key("c", 9) < keys.page_key("c", 10)


def test_a_key_that_no_release_has_written_is_nothing() -> None:
    for key in (b"meta/", b"meta/c/start", b"meta/c/page/x", b"meta/g/c/next", b"meta/a/b/c/d"):
        assert keys.parsed(key) is None
