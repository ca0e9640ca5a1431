"""Commits of batches from a program's side: all that was staged for one becomes visible, once.

Owns the trying again, which is safe: a batch that was committed is not committed once more.
Next: broker/edge/tidemark/commits_service.py
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.errors import DeadlineExceeded, InvalidArgument, OutcomeUnknown
from broker.client.net.connection import Connection
from broker.client.net.retry_call import retry_call
from broker.client.txn.stage import StagedPart
from broker.model.stage import StageName
from schemas.generated.tidemark import v1

_SERVICE: Final = "/tidemark.v1.Commits/"
COMMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A batch that took effect.

    `ticks[vchannel]`: who has read that far on the vchannel has all of the batch; a vchannel whose
    tick the broker has forgotten is missing. `already`: it, or a later one, took effect before this
    call; then `batch` is the app's newest one, and the ticks are that one's, and `left_out` of the
    transactions that were named are no part of it: they were staged once more, and are given up.
    """

    app: str
    batch: int
    already: bool
    ticks: Mapping[str, int]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class AppCommits:
    """What the broker remembers of one app. None: no batch took effect yet, none is under way.

    `age_ms`: how long the commit of `txns` transactions has been under way, since the broker's
    coordinator started at most.
    """

    app: str
    batch: int | None
    done_ms: int
    under_way: int | None
    state: str
    txns: int
    age_ms: int


class BatchCommits:
    """Commits, gives up and lists. Every call has a deadline, and raises what `errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    async def commit(
        self, app: str, batch: int, parts: Iterable[StagedPart], deadline_s: float
    ) -> BatchCommitted:
        """See `Client.commit_batch`."""
        request = v1.CommitBatchRequest(app=app, batch=batch, txns=_txns(app, batch, parts))

        async def ask(left_s: float) -> v1.CommitBatchResponse:
            return await self._connection.call(
                _SERVICE + "Commit", request, v1.CommitBatchResponse, deadline_s=left_s
            )

        try:
            done = await retry_call(ask, deadline_s)
        except DeadlineExceeded as error:
            raise OutcomeUnknown(
                f"no answer within {deadline_s} s: batch {batch} of app {app!r} may take effect"
                f" yet; ask again with the same parts ({error})"
            ) from error
        ticks = {it.vchannel: it.time_tick for it in done.ticks}
        return BatchCommitted(app, done.batch, done.already, ticks, done.left_out)

    async def abort(self, parts: Iterable[StagedPart], deadline_s: float | None) -> int:
        """See `Client.abort_batch`."""
        by_batch: dict[tuple[str, int], list[StagedPart]] = {}
        for part in parts:
            by_batch.setdefault((part.app, part.batch), []).append(part)
        rolled_back = 0
        for (app, batch), mine in by_batch.items():
            for attempt in _apart(mine):
                txns = _txns(app, batch, attempt)
                request = v1.AbortBatchRequest(app=app, batch=batch, txns=txns)
                rolled_back += await self._abort(request, deadline_s or self._deadline_s)
        return rolled_back

    async def list(self) -> list[AppCommits]:
        """Every app that the broker remembers, sorted by name."""
        answer = await self._connection.call(
            _SERVICE + "List",
            v1.ListCommitsRequest(),
            v1.ListCommitsResponse,
            deadline_s=self._deadline_s,
        )
        return [
            AppCommits(
                it.app,
                None if it.batch < 0 else it.batch,
                it.done_ms,
                None if it.under_way < 0 else it.under_way,
                it.state,
                it.txns,
                it.age_ms,
            )
            for it in answer.apps
        ]

    async def _abort(self, request: v1.AbortBatchRequest, deadline_s: float) -> int:
        async def ask(left_s: float) -> v1.AbortBatchResponse:
            return await self._connection.call(
                _SERVICE + "Abort", request, v1.AbortBatchResponse, deadline_s=left_s
            )

        return (await retry_call(ask, deadline_s)).rolled_back


def _apart(parts: Sequence[StagedPart]) -> Iterable[Sequence[StagedPart]]:
    """Several attempts at one part cannot be named together; they are given up all the same."""
    rounds: list[dict[int, StagedPart]] = []
    for part in parts:
        free = next((it for it in rounds if part.part not in it), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[part.part] = part
    return [list(it.values()) for it in rounds]


def _txns(app: str, batch: int, parts: Iterable[StagedPart]) -> list[v1.StagedTxn]:
    """Raises InvalidArgument for a part of something else."""
    problem = StageName(app, batch, 0, 0).problem
    if problem:
        raise InvalidArgument(problem)
    found: list[v1.StagedTxn] = []
    for part in parts:
        if (part.app, part.batch) != (app, batch):
            raise InvalidArgument(
                f"part {part.part} was staged for batch {part.batch} of app {part.app!r}, not for"
                f" batch {batch} of app {app!r}"
            )
        found += [
            v1.StagedTxn(vchannel=vchannel, txn_id=txn_id, part=part.part, attempt=part.attempt)
            for vchannel, txn_id in part.txns
        ]
    return found
