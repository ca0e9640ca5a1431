"""One program's batch over several vchannels: it stages, and commits at the end of its block.

Its stage belongs to an app of this client alone, so nobody has to choose names and numbers.
Whatever dies, the batch is committed whole or rolled back: by its keepalive before the coordinator
has decided, by the decision afterwards.
"""

from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import anyio

from broker.client.append.appends import Appends
from broker.client.errors import OutcomeUnknown, TidemarkError
from broker.client.txn.batch_commits import BatchCommits, BatchCommitted
from broker.client.txn.stage import Resolve, Stage, StagedPart
from broker.model.stage import ONE_RUN_PREFIX, StageName

KEEPALIVE_S = 30.0
ABORT_S = 5.0


@dataclass(slots=True)
class OneRunApp:
    """An app that commits one batch after the other; `batch` is the next."""

    name: str
    batch: int = 0


class OneRunApps:
    """The apps of one client: as many as it had batches open at once."""

    def __init__(self) -> None:
        self._free: list[OneRunApp] = []

    def take(self) -> OneRunApp:
        """One that has no batch open."""
        return self._free.pop() if self._free else OneRunApp(f"{ONE_RUN_PREFIX}{uuid4()}")

    def give_back(self, app: OneRunApp) -> None:
        """Its batch has ended, by commit or not."""
        app.batch += 1
        self._free.append(app)


class StagedBatch(Stage):
    """What is appended and acknowledged in it takes effect together, or never: `Client.staged`.

        async with log.staged() as out:
            await out.append("bills", b"two tickets to Ulm")
            await out.ack(batch)

    Targets are on any nodes. Leaving the block commits, an exception aborts. Raises
    TransactionExpired when nothing was sent for `keepalive_s`, or a flush or a change of a
    collection ended a part: nothing of it will be read, and what it acknowledged comes again.
    OutcomeUnknown when the answer to the commit was lost: it took effect whole or not at all.
    """

    def __init__(
        self,
        appends: Appends,
        resolve: Resolve,
        steps: tuple[OneRunApps, BatchCommits],
        keepalive_ms: int,
        deadline_s: float,
    ) -> None:
        self._apps, self._commits = steps
        self._app: OneRunApp | None = self._apps.take()
        name = StageName(self._app.name, self._app.batch, 0, 0)
        super().__init__(appends, resolve, name, deadline_s, keepalive_ms=keepalive_ms)

    async def commit(self) -> BatchCommitted:
        """Make all of it take effect; leaving the block does it. `ticks`: where, by vchannel."""
        try:
            part = await self.seal()
        except TidemarkError:
            await self.discard()
            raise
        if not part.txns:
            self._end()
            return BatchCommitted(part.app, part.batch, already=False, ticks={})
        try:
            done = await self._commits.commit(part.app, part.batch, [part])
        except OutcomeUnknown:
            raise  # the app may be busy with it for long, so no other batch follows
        except TidemarkError:
            await self._abort(part)
            raise
        self._end()
        return done

    async def discard(self) -> None:
        """Abort it; what it acknowledged comes again. What cannot be reached now expires."""
        await super().discard()
        self._end()

    async def __aexit__(self, *raised: object) -> None:
        if self._ended:
            return
        if all(it is None for it in raised):
            await self.commit()
        else:
            await self.discard()

    async def _abort(self, part: StagedPart) -> None:
        """The commit was refused; before or after the parts were asked, so they may be open."""
        with anyio.CancelScope(shield=True), suppress(TidemarkError):  # they expire otherwise
            await self._commits.abort([part], deadline_s=ABORT_S)
        self._end()

    def _end(self) -> None:
        if self._app is not None:
            self._apps.give_back(self._app)
            self._app = None
