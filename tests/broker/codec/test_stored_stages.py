"""Which stage a begin is of, and the coordinator's words as a log stores them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from broker.codec.staged_commands import NodeStagedTxns
from broker.codec.stored_headers import StoredHeaders
from broker.codec.stored_stages import stage_of
from broker.edge.milvus.message_admission import MessageAdmission
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick, TxnId, VChannelName
from broker.model.message import PREPARE_TXN, Appended, MessageType, NewMessage
from broker.model.stage import NUMBER_MAX, BatchCommit, StagedTxn, StageName, TxnCommand
from broker.ports.headers import BadHeader
from broker.ports.staged_txns import NoStagedTxns
from schemas.properties.batch_mark import read_batch_mark
from schemas.properties.keys import BATCH, STAGE, STAGE_RUN, TXN, StageKey
from schemas.scan import ScannedMessage, scan_message, stored_properties
from schemas.wire import message

P = PChannelName("by-dev-rootcoord-dml_0")
V = VChannelName(f"{P}_1v0")
TXN_OF = StagedTxn(V, TxnId(77), 2, 1)
COMMIT = BatchCommit("a:job", 7, (TXN_OF,))
NAME = StageName("a:job", 7, 2, 1)


class Node:
    """Only what a word needs of a node: it remembers what it is to append."""

    def __init__(self) -> None:
        self.appended: list[NewMessage] = []

    async def append(
        self, _: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        self.appended += messages
        return [Appended(MessageId(1), TimeTick(9), MessageId(1))] * len(messages)

    async def owners(self) -> Mapping[PChannelName, Any]:
        return {P: self}


def begin(stage: str, **more: str) -> ScannedMessage:
    properties = {"_t": "900", "_v": "2", "_h": "", "_vc": V, STAGE.key: stage}
    encoded = message(b"", properties | more)
    return scan_message(encoded, 0, len(encoded))


def test_a_begin_says_which_stage_it_is_of() -> None:
    text = STAGE.encode(StageKey(NAME.app, NAME.batch, NAME.part, NAME.attempt))
    found = MessageAdmission(P, 1000).judge(begin(text))
    assert not isinstance(found, Refusal)
    assert found.stage == NAME == stage_of(found.body) == StoredHeaders().stage(found.body)


def test_a_begin_says_in_which_life_of_its_app_it_is_staged() -> None:
    text = STAGE.encode(StageKey(NAME.app, NAME.batch, NAME.part, NAME.attempt))
    of_run = {STAGE_RUN.key: STAGE_RUN.encode(NUMBER_MAX)}
    for scanned, run in ((begin(text, **of_run), NUMBER_MAX), (begin(text), 0)):
        found = stage_of(scanned.stored)
        assert found is not None
        assert (found, found.run) == (NAME, run)
    for wrong in ("", "-1", "x", str(NUMBER_MAX + 1)):
        refused = MessageAdmission(P, 1000).judge(begin(text, **{STAGE_RUN.key: wrong}))
        assert isinstance(refused, Refusal)
        assert "tidemark.stage_run" in refused.cause


@pytest.mark.parametrize(
    "text", ["", "1:2:3", "1:2:x:job", "-1:0:0:job", "1:2:3:", "1:2:3:" + "x" * 257]
)
def test_a_begin_of_no_possible_stage_is_refused(text: str) -> None:
    scanned = begin(text)
    found = MessageAdmission(P, 1000).judge(scanned)
    assert isinstance(found, Refusal)
    assert found.code is StreamingCode.INVALID_ARGUMENT
    assert "tidemark.stage" in found.cause
    with pytest.raises(BadHeader, match="stage of a BeginTxn cannot be decoded"):
        StoredHeaders().stage(scanned.stored)


@pytest.mark.parametrize(
    ("word", "kind", "authority"),
    [
        (TxnCommand.PREPARE, PREPARE_TXN, NAME),
        (TxnCommand.COMMIT, MessageType.COMMIT_TXN, NAME),
        (TxnCommand.ABORT, MessageType.ROLLBACK_TXN, NAME),
        (TxnCommand.ABORT_UNPREPARED, MessageType.ROLLBACK_TXN, None),
    ],
)
async def test_a_word_is_a_message_to_the_owner(
    word: TxnCommand, kind: int, authority: StageName | None
) -> None:
    node = Node()
    outcomes = await NodeStagedTxns(node.owners).send(word, COMMIT, COMMIT.txns)
    assert list(outcomes) == [TXN_OF]
    (sent,) = node.appended
    assert sent.txn is not None
    assert (sent.type, sent.vchannel, sent.txn.id, sent.stage) == (kind, V, 77, authority)
    if kind != PREPARE_TXN:
        properties = stored_properties(sent.body)
        assert TXN.need(properties).txn_id == 77
        assert (BATCH.key in properties) == (word is TxnCommand.COMMIT)
        assert word is not TxnCommand.COMMIT or read_batch_mark(properties[BATCH.key]).total == 1


async def test_a_process_that_is_no_coordinator_gives_no_word() -> None:
    (outcome,) = (await NoStagedTxns().send(TxnCommand.PREPARE, COMMIT, COMMIT.txns)).values()
    assert isinstance(outcome, Refusal)
