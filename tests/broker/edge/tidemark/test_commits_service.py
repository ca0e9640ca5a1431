"""What a repeated commit reports of the transactions that came with it."""

from collections.abc import Mapping, Sequence

import anyio

from actors.testing import run_seeded
from broker.coordinator.commit.messages import CommitBatch
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.request_metadata import Identity
from broker.edge.tidemark.commits_service import CommitsService
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, NodeId, TimeTick
from broker.model.message import Appended
from broker.model.stage import BatchCommit, BatchCommitted, StagedTxn, TxnCommand
from schemas.generated.tidemark import v1

ROLLED_BACK = Appended(MessageId(1), TimeTick(1), MessageId(1))
TXNS = [v1.StagedTxn(vchannel="by-dev-rootcoord-dml_0_1v0", txn_id=it, part=it) for it in range(4)]


class Committer:
    """Has committed the batch before."""

    async def ask(self, message: CommitBatch, *, deadline_s: float) -> BatchCommitted:
        return BatchCommitted(message.commit.app, message.commit.batch, {}, already=True)


class Txns:
    """A `StagedTxns` with prepared answers; without any it never answers."""

    def __init__(self, *answers: Appended | Refusal) -> None:
        self._answers = answers

    async def send(
        self, command: TxnCommand, commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        if not self._answers:
            await anyio.sleep_forever()
        return dict(zip(txns, self._answers, strict=True))


def left_out(*answers: Appended | Refusal) -> int:
    async def scenario() -> int:
        middleware = Middleware(Identity("by-dev", NodeId(1)), EdgeLimits())
        service = CommitsService(middleware, Committer(), Txns(*answers))  # type: ignore[arg-type]
        done = await service.commit(v1.CommitBatchRequest(app="etl", batch=1, txns=TXNS))
        assert done.already
        return done.left_out

    return run_seeded(1, scenario)


def test_transactions_that_were_not_committed_are_counted() -> None:
    committed = Refusal(StreamingCode.INVALID_TRANSACTION_STATE, "it was committed")
    expired = Refusal(StreamingCode.TRANSACTION_EXPIRED, "unknown")
    assert left_out(ROLLED_BACK, committed, expired, ROLLED_BACK) == 3


def test_those_that_did_not_answer_are_not_counted_as_left_out() -> None:
    away = Refusal(StreamingCode.UNKNOWN, "no answer")
    assert left_out(ROLLED_BACK, away, away, away) == 1
    assert left_out() == 0
