"""What a program stages and commits batches with: writers stage rows, one call commits them all.

It only hands on, as its other half does. Next: broker/client/appending.py
"""

from collections.abc import Iterable

from broker.client.append.appends import Appends
from broker.client.appending import Appending
from broker.client.cluster.targets import Shards, Targets
from broker.client.net.deadlines import Deadlines
from broker.client.txn.batch_commits import COMMIT_S, AppCommits, BatchCommits, BatchCommitted
from broker.client.txn.stage import Stage, StagedPart, checked_name


class Staging(Appending):
    """The methods of a `Client` that stage and commit batches; see there for what all raise."""

    def __init__(
        self, appends: Appends, targets: Targets, deadlines: Deadlines, commits: BatchCommits
    ) -> None:
        super().__init__(appends, targets, deadlines)
        self._commits = commits

    def stage(
        self,
        app: str,
        batch: int,
        part: int,
        attempt: int = 0,
        *,
        run: int = 0,
        deadline_s: float | None = None,
    ) -> Stage:
        """What one writer stages for a batch: `async with log.stage("job", 7, part) as stage`.

        `app` names the job, the same in every run of it; `batch` grows; `part` is the writer's own,
        and `attempt` is another number each time a part is written again. Nothing of it is read
        before `commit_batch` is given what `seal` gave. `deadline_s` holds for each step by itself.
        `run` grows with each life of the job, such as the time when it began: what an earlier life
        has staged for the same batch is given up wherever this one stages, and so is what smaller
        attempts at this part have, unless a commit has taken hold of it; 0: it expires by itself.
        Raises InvalidArgument for a name that is empty or too long, or a number below 0.
        """
        self._check_usable()
        name = checked_name(app, batch, part, attempt, run)
        return Stage(self._appends, self._staged_on, name, deadline_s or self._deadlines.append_s)

    async def commit_batch(
        self, app: str, batch: int, parts: Iterable[StagedPart], *, deadline_s: float = COMMIT_S
    ) -> BatchCommitted:
        """Make all that these parts hold visible, or nothing of it; exactly once.

        When the app has committed this batch, or a later one, the answer is that one's, `already`
        is true, and what the parts hold is given up. So a batch that was staged again after a crash
        is simply committed again. A cut with `whole_broadcasts` has all of it, or nothing. Without
        parts an empty batch is committed.

        Raises OutcomeUnknown when the deadline passed: it may take effect yet, ask again with the
        same parts. TransactionExpired or InvalidTransactionState when one of them has ended before:
        nothing is committed, stage the batch again. InvalidArgument for parts of something else.
        Unrecoverable when a damaged log has lost some of it.
        """
        self._check_usable()
        return await self._commits.commit(app, batch, parts, deadline_s)

    async def abort_batch(
        self, parts: Iterable[StagedPart], *, deadline_s: float | None = None
    ) -> int:
        """Give up what these parts hold; how many of their transactions are rolled back.

        What is committed, or what a commit has taken hold of, stays as it is. What cannot be
        reached now expires by itself.
        """
        self._check_usable()
        return await self._commits.abort(parts, deadline_s)

    async def committed_batches(self) -> list[AppCommits]:
        """Of each app that the broker remembers its newest batch, and the commit under way."""
        self._check_usable()
        return await self._commits.list()

    async def _staged_on(self, target: str) -> Shards:
        self._check_usable()
        return self._targets.known(target) or await self._targets.resolve(target)
