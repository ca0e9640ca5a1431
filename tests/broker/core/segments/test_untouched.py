"""The quick answer for plain logs is the one that a look at each message gives."""

from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.codec.stored_headers import StoredHeaders
from broker.core.segments.segment_assigner import DDL_TYPES, placed_apart, segment_assigner
from broker.core.segments.segment_sealing import SealReason
from broker.core.segments.segment_table import NewSegment, SegmentTable
from broker.core.segments.untouched import untouched
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.message import MessageType, NewMessage

P = "by-dev-rootcoord-dml_0"
PLAIN, LIVING, DROPPED = f"{P}_1v0", f"{P}_2v0", f"{P}_3v0"
CONTROL = f"{P}_vcchan"
PARTITION = PartitionId(9)
NOT_READ = Refusal(StreamingCode.UNRECOVERABLE, "no header is read here")

VCHANNELS = st.sampled_from([PLAIN, PLAIN, PLAIN, LIVING, DROPPED, CONTROL])
MESSAGES = st.builds(NewMessage, VCHANNELS, st.sampled_from(MessageType), st.just(b""), st.just(1))
INSERTS = st.builds(NewMessage, VCHANNELS, st.just(MessageType.INSERT), st.just(b""), st.just(1))
GROUPS = st.one_of(st.lists(INSERTS), st.lists(st.one_of(INSERTS, MESSAGES)))


def table_with(
    collections: Iterable[str], dropped: Iterable[str], *, sealed: bool, required: bool
) -> SegmentTable:
    table = SegmentTable(required=required)
    for vchannel in (*dropped, *collections):
        table.create_collection(vchannel, CollectionId(5), (PARTITION,), 0)
    for vchannel in dropped:
        table.drop_collection(vchannel)
    for vchannel in collections:
        new = NewSegment(SegmentId(1), TimeTick(1), 0.5)
        segment = table.create_segment(vchannel, PARTITION, new, (1, 1))
        if sealed:
            table.seal(segment, SealReason.FORCED)
    return table


def concerned(table: SegmentTable, messages: list[NewMessage]) -> bool:
    """The slow way: each message is looked at."""
    apart = placed_apart(table, messages)
    chances = iter(Random(1).random, None)
    found = segment_assigner(table, messages, lambda _: NOT_READ, StoredHeaders(), chances)
    return apart is not None or found is not None


@given(
    st.sampled_from([(), (LIVING,)]),
    st.sampled_from([(), (DROPPED,)]),
    st.booleans(),
    st.booleans(),
    GROUPS,
)
def test_a_group_is_untouched_exactly_when_no_message_and_no_segment_of_it_counts(
    collections: tuple[str, ...],
    dropped: tuple[str, ...],
    sealed: bool,
    required: bool,
    messages: list[NewMessage],
) -> None:
    table = table_with(collections, dropped, sealed=sealed, required=required)
    if table.idle:
        opens = any(it.type == MessageType.CREATE_COLLECTION for it in messages)
        assert untouched(table, messages) is not opens
    elif untouched(table, messages):
        assert not concerned(table, messages)
    else:
        # It may ask in vain only for changes, and about an owner's own settings and segments.
        changes = any(it.type in DDL_TYPES for it in messages)
        others = any(it.vchannel in (LIVING, DROPPED) for it in messages)
        assert concerned(table, messages) or changes or others or required


def test_a_group_is_untouched_where_no_collection_is_and_none_is_created() -> None:
    insert = NewMessage(PLAIN, MessageType.INSERT, b"a", 1)
    create = NewMessage(PLAIN, MessageType.CREATE_COLLECTION, b"", 1)
    assert untouched(SegmentTable(), [insert])
    assert not untouched(SegmentTable(), [insert, create])
    assert not untouched(SegmentTable(required=True), [insert])


def test_a_group_of_plain_logs_is_untouched_beside_collections() -> None:
    table = table_with((LIVING,), (DROPPED,), sealed=False, required=False)
    plain = [NewMessage(PLAIN, MessageType.INSERT, b"a", 1)] * 3
    assert untouched(table, plain)
    for vchannel in (LIVING, DROPPED):
        assert not untouched(table, [*plain, NewMessage(vchannel, MessageType.INSERT, b"a", 1)])
    for kind in DDL_TYPES:
        assert not untouched(table, [*plain, NewMessage(PLAIN, kind, b"", 1)])
    sealed = table_with((LIVING,), (), sealed=True, required=False)
    assert not untouched(sealed, plain)
    assert concerned(sealed, plain)
