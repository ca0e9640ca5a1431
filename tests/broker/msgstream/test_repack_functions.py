"""How packs are spread over channels."""

from collections.abc import Mapping, Sequence

import pytest

from broker.msgstream import (
    DeleteMsg,
    EncodedMsg,
    InsertMsg,
    MsgPack,
    RepackFailed,
    SearchMsg,
    TimeTickMsg,
    TsMsg,
    WrongOrder,
)
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.repack_functions import repacked
from schemas.generated.tidemark import v1


def test_each_row_of_an_insert_goes_to_the_bucket_of_its_key() -> None:
    msg = InsertMsg.of_rows(
        [b"a", b"b", b"c"], row_ids=[100, 101, 102], timestamps=[7, 7, 7], hash_keys=[5, 8, 3]
    )
    found = repacked([msg], 2)
    shown = {bucket: [it.body.row_i_ds for it in some] for bucket, some in found.items()}  # type: ignore[attr-defined]
    assert shown == {0: [[101]], 1: [[100], [102]]}
    assert {it.body.base.timestamp for some in found.values() for it in some} == {7}  # type: ignore[attr-defined]


def test_each_key_of_a_delete_goes_to_the_bucket_of_its_hash_key() -> None:
    msg = DeleteMsg.of_keys([10, 11, 12], timestamps=[7, 8, 9], hash_keys=[0, 1, 2])
    found = repacked([msg], 2)
    assert {bucket: [it.keys for it in some] for bucket, some in found.items()} == {  # type: ignore[attr-defined]
        0: [[10], [12]],
        1: [[11]],
    }


def test_other_messages_go_whole_to_the_bucket_of_their_only_key() -> None:
    msgs = [SearchMsg(v1.SearchBody(), hash_keys=[key]) for key in (4, 5, 6)]
    assert repacked(msgs, 2) == {0: [msgs[0], msgs[2]], 1: [msgs[1]]}


def test_an_encoded_insert_goes_whole() -> None:
    raw = InsertMsg.of_rows([b"a"], row_ids=[1], timestamps=[7], hash_keys=[0]).marshal()
    kept = EncodedMsg(raw, hash_keys=[3])
    assert repacked([kept], 2) == {1: [kept]}
    assert repacked([kept, kept], 1) == {0: [kept, kept]}
    search = EncodedMsg(SearchMsg(v1.SearchBody()).marshal(), hash_keys=[0])
    assert repacked([search, kept], 2) == {0: [search], 1: [kept]}
    with pytest.raises(RepackFailed, match="message 1 is SEARCH, but the pack began with INSERT"):
        repacked([kept, search], 2)
    with pytest.raises(RepackFailed, match=r"message 0 \(INSERT\) has 2 hash keys"):
        repacked([EncodedMsg(raw, hash_keys=[1, 2])], 2)


@pytest.mark.parametrize(
    ("msgs", "why"),
    [
        (
            [InsertMsg.of_rows([b"a"], row_ids=[1, 2], timestamps=[7], hash_keys=[0])],
            r"message 0 \(INSERT\) has 1 hash keys, but 1 timestamps, 2 row ids, 1 rows",
        ),
        (
            [DeleteMsg.of_keys([1, 2], timestamps=[7, 8], hash_keys=[0])],
            r"message 0 \(DELETE\) has 1 hash keys, but 2 timestamps, 2 primary keys",
        ),
        (
            [InsertMsg.of_rows([], row_ids=[], timestamps=[], hash_keys=[]), TimeTickMsg.at(5)],
            "message 1 is TIME_TICK, but the pack began with INSERT",
        ),
        (
            [DeleteMsg.of_keys([], timestamps=[], hash_keys=[]), TimeTickMsg.at(5)],
            "message 1 is TIME_TICK, but the pack began with DELETE",
        ),
        ([SearchMsg(v1.SearchBody())], r"message 0 \(SEARCH\) has 0 hash keys"),
        ([SearchMsg(v1.SearchBody(), hash_keys=[1, 2])], r"\(SEARCH\) has 2 hash keys"),
    ],
)
def test_messages_that_do_not_fit_their_rule_are_refused_by_what_is_wrong(
    msgs: list[TsMsg], why: str
) -> None:
    with pytest.raises(RepackFailed, match=why):
        repacked(msgs, 2)


def test_a_rule_of_the_program_replaces_the_default() -> None:
    def all_to_one(
        msgs: Sequence[TsMsg], buckets: Sequence[Sequence[int]]
    ) -> Mapping[int, MsgPack]:
        assert buckets == [[0]]
        return {1: MsgPack(msgs), 0: MsgPack()}

    tick = TimeTickMsg.at(5)
    assert repacked([tick], 2, all_to_one) == {1: [tick]}


@pytest.mark.parametrize("bucket", [2, -1])
def test_a_rule_that_names_an_unknown_bucket_is_refused(bucket: int) -> None:
    with pytest.raises(RepackFailed, match=rf"named bucket {bucket}; there are 2 channels"):
        repacked([TimeTickMsg.at(5)], 2, lambda msgs, _: {bucket: MsgPack(msgs)})


def test_a_rule_that_raises_is_named_with_its_error() -> None:
    def broken(_: object, __: object) -> Mapping[int, MsgPack]:
        raise KeyError("no such shard")

    with pytest.raises(RepackFailed, match=r"raised KeyError\('no such shard'\); nothing was sent"):
        repacked([TimeTickMsg.at(5)], 2, broken)


def test_an_error_of_ours_in_a_rule_stays_what_it_is() -> None:
    def broken(_: object, __: object) -> Mapping[int, MsgPack]:
        raise WrongOrder("said the program")

    with pytest.raises(WrongOrder, match="said the program"):
        repacked([TimeTickMsg.at(5)], 2, broken)


def test_the_rule_is_that_of_the_first_message() -> None:
    tick = TimeTickMsg.at(5)
    late = InsertMsg.of_rows([b"a"], row_ids=[1], timestamps=[7], hash_keys=[1])
    assert repacked([tick, late], 2) == {0: [tick], 1: [late]}
    assert tick.type == MsgType.TIME_TICK
