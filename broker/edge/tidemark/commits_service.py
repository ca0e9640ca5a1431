"""tidemark.v1.Commits: commit, abort and list batches of staged transactions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import structlog
from grpclib.const import Handler

from broker.coordinator.commit.messages import CommitBatch, CommitView, ListCommits
from broker.core.txn.batch_commit import commit_problem
from broker.edge.rpc.access.access import CURRENT, Access, Sight, everything
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import TxnId, VChannelName
from broker.model.message import Appended
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand
from broker.ports.staged_txns import StagedTxns
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Commits/"
COMMIT_S: Final = 120.0
"""Longer than the Committer takes to find that a batch cannot be prepared."""
ABORT_S: Final = 10.0
"""A transaction that is not aborted by then expires."""

log = structlog.get_logger(__name__)


class CommitsService:
    """Commit, Abort, List."""

    def __init__(self, middleware: Middleware, committer: Proxy, txns: StagedTxns) -> None:
        self._middleware = middleware
        self._committer = committer
        self._txns = txns

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Commit": middleware.unary(
                v1.CommitBatchRequest, self.commit, interruptible=True
            ),
            SERVICE + "Abort": middleware.unary(v1.AbortBatchRequest, self.abort),
            SERVICE + "List": middleware.unary(v1.ListCommitsRequest, self.list),
        }

    async def commit(self, request: v1.CommitBatchRequest) -> v1.CommitBatchResponse:
        """Commit a batch; refused as `CommitBatch` refuses."""
        asked = _asked(request)
        done = await self._committer.ask(CommitBatch(asked), deadline_s=COMMIT_S)
        left_out = await self._leave_out(asked) if done.already else 0
        ticks = [v1.CommittedTo(vchannel=it, time_tick=tick) for it, tick in done.ticks.items()]
        return v1.CommitBatchResponse(
            batch=done.batch, already=done.already, ticks=ticks, left_out=left_out
        )

    async def abort(self, request: v1.AbortBatchRequest) -> v1.AbortBatchResponse:
        """Roll back staged transactions. INVALID_ARGUMENT when they cannot be of one batch."""
        asked = _asked(request)
        wrong = commit_problem(asked)
        if wrong:
            raise invalid_argument(wrong)
        outcomes = await self._abort(asked)
        rolled_back = sum(isinstance(it, Appended) for it in outcomes)
        return v1.AbortBatchResponse(rolled_back=rolled_back)

    async def list(self, _: v1.ListCommitsRequest) -> v1.ListCommitsResponse:
        """The newest commit of each app that has used a vchannel which the caller sees."""
        access = CURRENT.get()
        shows = await access.sight()
        found: Sequence[CommitView] = await self._committer.ask(ListCommits())
        if shows is not everything:
            found = [it for it in found if await _is_seen(access, shows, it)]
        return v1.ListCommitsResponse(apps=[_info(it) for it in found])

    async def _leave_out(self, asked: BatchCommit) -> int:
        """Roll back a repeated batch's transactions; how many of them were certainly not committed.

        A caller that lost the first answer repeats the request with the very transactions that were
        committed: those do not count. Nor do those whose log did not answer in time.
        """
        outcomes = await self._abort(asked)
        if len(outcomes) < len(asked.txns):
            log.warning("not all transactions of a repeated batch were asked", app=asked.app)
        return sum(
            isinstance(it, Appended) or it.code is StreamingCode.TRANSACTION_EXPIRED
            for it in outcomes
        )

    async def _abort(self, asked: BatchCommit) -> Sequence[Appended | Refusal]:
        """The outcomes, empty when they did not all arrive in time."""
        with anyio.move_on_after(ABORT_S):
            return tuple(
                (await self._txns.send(TxnCommand.ABORT_UNPREPARED, asked, asked.txns)).values()
            )
        return ()


async def _is_seen(access: Access, shows: Sight, view: CommitView) -> bool:
    for vchannel in view.vchannels:
        if shows(await access.channel(vchannel)):
            return True
    return False


class CommitsRedirect:
    """Refuses Commit, Abort and List on a node, and names the coordinator to connect to."""

    def __init__(self, middleware: Middleware, coordinator: Callable[[], str]) -> None:
        self._middleware = middleware
        self._coordinator = coordinator

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Commit": middleware.unary(v1.CommitBatchRequest, self._refuse_commit),
            SERVICE + "Abort": middleware.unary(v1.AbortBatchRequest, self._refuse_abort),
            SERVICE + "List": middleware.unary(v1.ListCommitsRequest, self._refuse_list),
        }

    async def _refuse_commit(self, _: v1.CommitBatchRequest) -> v1.CommitBatchResponse:
        raise self._refused()

    async def _refuse_abort(self, _: v1.AbortBatchRequest) -> v1.AbortBatchResponse:
        raise self._refused()

    async def _refuse_list(self, _: v1.ListCommitsRequest) -> v1.ListCommitsResponse:
        raise self._refused()

    def _refused(self) -> Refused:
        return invalid_argument(
            "this is a node, only the coordinator commits batches; connect to"
            f" {self._coordinator()}"
        )


def _asked(request: v1.CommitBatchRequest | v1.AbortBatchRequest) -> BatchCommit:
    return BatchCommit(request.app, request.batch, _txns(request.txns))


def _txns(found: Sequence[v1.StagedTxn]) -> tuple[StagedTxn, ...]:
    return tuple(
        StagedTxn(VChannelName(it.vchannel), TxnId(it.txn_id), it.part, it.attempt) for it in found
    )


def _info(view: CommitView) -> v1.AppInfo:
    return v1.AppInfo(
        app=view.app,
        batch=view.batch,
        done_ms=view.done_ms,
        under_way=view.under_way,
        state=view.state,
        txns=view.txns,
        age_ms=view.age_ms,
    )
