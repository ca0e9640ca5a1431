"""Dispatchers of bytes and of objects."""

import pytest

from broker.msgstream import (
    BadMessage,
    EncodedMsg,
    InsertMsg,
    MemUDFactory,
    NoTemplate,
    ProtoUDFactory,
    TimeTickMsg,
)
from broker.msgstream.messages.msg_type import MsgType

REGISTERED = {
    *("INSERT", "DELETE", "SEARCH", "SEARCH_RESULT", "RETRIEVE", "RETRIEVE_RESULT", "TIME_TICK"),
    *("QUERY_NODE_STATS", "CREATE_COLLECTION", "DROP_COLLECTION", "CREATE_PARTITION"),
    *("DROP_PARTITION", "SEGMENT_STATISTICS", "LOAD_BALANCE_SEGMENTS", "DATA_NODE_TT"),
}
TICK = TimeTickMsg.at(5)


def test_the_proto_dispatcher_has_the_templates_of_early_milvus_and_no_others() -> None:
    dispatcher = ProtoUDFactory().new_unmarshal_dispatcher()
    for kind in MsgType:
        wanted = BadMessage if kind.name in REGISTERED else NoTemplate
        with pytest.raises(wanted):
            dispatcher.unmarshal(b"\x0a\x00", kind)


def test_bytes_become_the_message_of_their_type() -> None:
    dispatcher = ProtoUDFactory().new_unmarshal_dispatcher()
    (raw,) = dispatcher.marshal([TICK])
    assert dispatcher.unmarshal(raw, dispatcher.type_of(raw)) == TICK


def test_a_type_without_a_template_is_named_and_one_can_be_added_or_replaced() -> None:
    dispatcher = ProtoUDFactory().new_unmarshal_dispatcher()
    flush = b"\x0a\x03\x08\x92\x03"
    with pytest.raises(NoTemplate, match=r"messages of type FLUSH \(402\)"):
        dispatcher.unmarshal(flush, MsgType.FLUSH)
    dispatcher.add_msg_template(MsgType.FLUSH, lambda raw: EncodedMsg(bytes(raw)))  # type: ignore[call-overload]
    assert dispatcher.unmarshal(flush, MsgType.FLUSH).type == MsgType.FLUSH
    dispatcher.add_msg_template(MsgType.TIME_TICK, lambda raw: EncodedMsg(bytes(raw)))  # type: ignore[call-overload]
    assert isinstance(dispatcher.unmarshal(TICK.marshal(), MsgType.TIME_TICK), EncodedMsg)


def test_templates_of_one_dispatcher_are_not_those_of_another() -> None:
    for factory in (ProtoUDFactory(), MemUDFactory()):
        one, other = factory.new_unmarshal_dispatcher(), factory.new_unmarshal_dispatcher()
        one.add_msg_template(MsgType.FLUSH, lambda raw: TICK)
        assert one.unmarshal(b"", MsgType.FLUSH) is TICK
        with pytest.raises(NoTemplate):
            other.unmarshal(b"", MsgType.FLUSH)


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(BadMessage, match="must be bytes, not InsertMsg"):
        ProtoUDFactory().new_unmarshal_dispatcher().unmarshal(
            InsertMsg.of_rows([], row_ids=[], timestamps=[], hash_keys=[]), MsgType.INSERT
        )


def test_the_memory_dispatcher_passes_the_object_itself_after_a_check_of_its_type() -> None:
    dispatcher = MemUDFactory().new_unmarshal_dispatcher()
    assert dispatcher.unmarshal(dispatcher.marshal([TICK])[0], dispatcher.type_of(TICK)) is TICK
    with pytest.raises(BadMessage, match="TimeTickMsg is not a InsertMsg"):
        dispatcher.unmarshal(TICK, MsgType.INSERT)
    with pytest.raises(BadMessage, match="must have a type, as str has not"):
        dispatcher.type_of("text")
