"""Commits staged batches: everything that was staged for one becomes visible, exactly once.

Requests are retried, which is safe: the broker remembers the newest batch of each app, and answers
a repeated commit with the first one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import ClosedClient, DeadlineExceeded, InvalidArgument, OutcomeUnknown
from broker.client.net.connection import Connection
from broker.client.net.retry_call import retry_call
from broker.client.txn.stage import StagedPart
from broker.model.stage import StageName
from schemas.generated.tidemark import v1

COMMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A committed batch.

    `ticks[vchannel]`: a reader that has read this vchannel up to this tick has seen all of the
    batch there; vchannels whose tick the broker has forgotten are missing. `already`: this batch or
    a later one was committed before the call. Then `batch` is the app's newest batch, `ticks` are
    its ticks, and `left_out` transactions of the parts are not in it: they were staged again and
    are aborted.
    """

    app: str
    batch: int
    already: bool
    ticks: Mapping[str, int]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class AppCommits:
    """What the broker remembers of one app.

    `batch`: the newest committed batch, None before the first; `done_ms`: when, in Unix
    milliseconds. `under_way`: the batch whose commit is running, if any, in which `state`, with how
    many `txns`, and for how long (`age_ms`, since the coordinator started at most).
    """

    app: str
    batch: int | None
    done_ms: int
    under_way: int | None
    state: str
    txns: int
    age_ms: int


class BatchCommits:
    """`log.commits`. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.Commits", deadline_s=deadline_s)
        self._deadline_s = deadline_s

    async def commit(
        self, app: str, batch: int, parts: Iterable[StagedPart], *, deadline_s: float = COMMIT_S
    ) -> BatchCommitted:
        """Make everything in these parts visible, or nothing; exactly once.

        When the app has already committed this batch or a later one, the result is that commit,
        with `already` set, and what the parts hold is aborted. So a batch that was staged again
        after a crash is simply committed again. Without parts an empty batch is committed.

        Raises OutcomeUnknown at the deadline, or when the client is closed meanwhile: it may still
        take effect; call again with the same parts. TransactionExpired or InvalidTransactionState
        when a part has ended before: nothing is committed; stage the batch again. InvalidArgument
        for parts of another batch. Unrecoverable when a damaged log has lost some of it.
        """
        request = v1.CommitBatchRequest(app=app, batch=batch, txns=_txns(app, batch, parts))

        async def ask(left_s: float) -> v1.CommitBatchResponse:
            return await self._calls.ask(
                "Commit", request, v1.CommitBatchResponse, deadline_s=left_s
            )

        self._calls.check_usable()
        try:
            done = await retry_call(ask, deadline_s)
        except (ClosedClient, DeadlineExceeded) as error:
            # Closed now, not before the call: the broker may have got the request.
            raise OutcomeUnknown(
                f"no answer: batch {batch} of app {app!r} may still take effect; commit it again"
                f" with the same parts ({error})"
            ) from error
        ticks = {it.vchannel: it.time_tick for it in done.ticks}
        return BatchCommitted(app, done.batch, done.already, ticks, done.left_out)

    async def abort(self, parts: Iterable[StagedPart], *, deadline_s: float | None = None) -> int:
        """Abort what these parts hold; returns how many transactions were rolled back.

        What is committed, or being committed, stays. What cannot be reached now expires.
        """
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
        """The commits of every app that the broker remembers, sorted by name."""
        request = v1.ListCommitsRequest()
        answer = await self._calls.ask("List", request, v1.ListCommitsResponse)
        return [
            AppCommits(
                it.app,
                # A negative number on the wire means none: batches begin at 0.
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
            return await self._calls.ask("Abort", request, v1.AbortBatchResponse, deadline_s=left_s)

        return (await retry_call(ask, deadline_s)).rolled_back


def _apart(parts: Sequence[StagedPart]) -> Iterable[Sequence[StagedPart]]:
    """Groups in which each part stands once: one request cannot name two attempts at a part."""
    rounds: list[dict[int, StagedPart]] = []
    for part in parts:
        free = next((it for it in rounds if part.part not in it), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[part.part] = part
    return [list(it.values()) for it in rounds]


def _txns(app: str, batch: int, parts: Iterable[StagedPart]) -> list[v1.StagedTxn]:
    """The transactions of all parts; InvalidArgument for a part of another batch."""
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
