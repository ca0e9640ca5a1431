"""Kill the committer or its tasks at every step: a batch takes effect whole, once, or never."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from actors import REST_FOR_ONE, ActorError, ChildSpec, MailboxSpec, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.commit.commit_records import APP_PREFIX
from broker.coordinator.commit.commit_task import CommitTiming
from broker.coordinator.commit.committer import CommitterLimits
from broker.coordinator.commit.messages import CommitBatch, CommitView, ListCommits
from broker.coordinator.commit.tree import BatchCommitParts, commits_tree
from broker.coordinator.cuts.cut_lock import CutLock
from broker.coordinator.cuts.messages import COMMITS, CUT_LOCK, Held, ReleaseHold, TakeHold
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick, TxnId, VChannelName
from broker.model.message import Appended
from broker.model.stage import BatchCommit, BatchCommitted, StagedTxn, TxnCommand
from broker.ports.meta import MetaError
from tests.broker.coordinator.broadcast.broadcasting import Faults, FaultyStore

ROOT = "/root/commits"
COMMITTER = f"{ROOT}/committer"
TASKS = f"{ROOT}/tasks"
CUT_LOCK_PATH = f"/root/{CUT_LOCK}"
P = tuple(PChannelName(f"by-dev-dml_{number}") for number in range(3))
V = tuple(VChannelName(f"{name}_1v0") for name in P)
ANSWER_S = 300.0
GONE, WRONG = StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE
RETRIABLE = (StreamingCode.INNER, StreamingCode.RESOURCE_ACQUIRED, StreamingCode.UNKNOWN)
BECOMES = {
    ("open", TxnCommand.PREPARE): "prepared",
    ("prepared", TxnCommand.PREPARE): "prepared",
    ("prepared", TxnCommand.COMMIT): "committed",
    ("committed", TxnCommand.COMMIT): "committed",
    ("open", TxnCommand.ABORT): "rolled back",
    ("prepared", TxnCommand.ABORT): "rolled back",
    ("rolled back", TxnCommand.ABORT): "rolled back",
}


class CommitFaults(Faults):
    """Of tasks whichever lives is killed; without one, the Committer."""

    def _victim(self, system: System) -> str:
        if self.path != TASKS:
            return self.path
        tasks = [it.path for it in system.statistics() if it.path.startswith(f"{TASKS}/")]
        return tasks[0] if tasks else COMMITTER


@dataclass
class Logs:
    """Naive participants. Each command to each transaction is a step; `away` do not answer."""

    faults: Faults
    state: dict[StagedTxn, str] = field(default_factory=dict)
    commits: Counter[StagedTxn] = field(default_factory=Counter)
    away: set[VChannelName] = field(default_factory=set)
    away_at: TxnCommand | None = None
    """The last vchannel stops being served when this command comes for the first time."""
    tick: int = 0

    async def send(
        self, command: TxnCommand, _commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        if command is self.away_at:
            self.away_at = None
            self.away.add(V[-1])
        return {txn: await self._hear(command, txn) for txn in txns}

    async def _hear(self, command: TxnCommand, txn: StagedTxn) -> Appended | Refusal:
        try:
            number = await self.faults.before()
            await anyio.sleep(0.001)
            answer = self._answer(command, txn)
            await self.faults.done(number)
        except MetaError as error:
            return Refusal(StreamingCode.UNKNOWN, str(error))
        return answer

    def _answer(self, command: TxnCommand, txn: StagedTxn) -> Appended | Refusal:
        if txn.vchannel in self.away:
            return Refusal(StreamingCode.CHANNEL_NOT_EXIST, "nobody serves it")
        now = self.state.get(txn)
        if now is None:
            return Refusal(GONE, "is not known")
        becomes = BECOMES.get((now, command))
        if becomes is None:
            return Refusal(WRONG, f"is {now}")
        self.commits[txn] += becomes == "committed" != now
        self.state[txn] = becomes
        self.tick += 1
        return Appended(MessageId(1), TimeTick(self.tick), MessageId(1))

    def stage(self, batch: int, attempt: int = 0, app: str = "job") -> BatchCommit:
        """Something on every vchannel."""
        number = 100 * batch + 10 * attempt
        txns = tuple(StagedTxn(it, TxnId(number), 0, attempt) for it in V)
        self.state |= dict.fromkeys(txns, "open")
        return BatchCommit(app, batch, txns)

    def states(self, commit: BatchCommit) -> set[str]:
        return {self.state[txn] for txn in commit.txns}


@dataclass
class Cluster:
    system: System
    store: FaultyStore
    logs: Logs

    async def commit(self, commit: BatchCommit) -> BatchCommitted | StreamingCode:
        """As a client asks: again, with the same, whenever that may help."""
        while True:
            try:
                return await self.once(commit)
            except ActorError:
                await anyio.sleep(0.01)
            except Refused as error:
                if error.refusal.code not in RETRIABLE:
                    return error.refusal.code
                await anyio.sleep(0.01)

    async def once(self, commit: BatchCommit) -> BatchCommitted:
        found: BatchCommitted = await self.system.find(COMMITTER).ask(
            CommitBatch(commit), deadline_s=ANSWER_S
        )
        return found

    async def hold(self) -> Held:
        found: Held = await self.system.find(CUT_LOCK_PATH).ask(TakeHold(V), deadline_s=ANSWER_S)
        return found

    async def views(self) -> tuple[CommitView, ...]:
        found: tuple[CommitView, ...] = await self.system.find(COMMITTER).ask(
            ListCommits(), deadline_s=ANSWER_S
        )
        return found

    def records(self) -> list[str]:
        return [key for key in self.store._entries if key.startswith(APP_PREFIX)]


def cluster(
    faults: Faults,
    *,
    limits: CommitterLimits | None = None,
    timing: CommitTiming | None = None,
    store: FaultyStore | None = None,
) -> Cluster:
    store = store or FaultyStore(faults)
    logs = Logs(faults)
    parts = BatchCommitParts(logs, timing or CommitTiming(), limits or CommitterLimits())
    cut_lock = ChildSpec(CUT_LOCK, lambda: CutLock((COMMITS,)), MailboxSpec(bound=1024))
    children = (cut_lock, commits_tree(store, parts, P, "/root"))
    spec = SupervisorSpec("root", REST_FOR_ONE, children)
    return Cluster(System(spec, clock=VirtualClock(), random=random.Random(1)), store, logs)


def run(faults: Faults, seed: int) -> None:
    async def main() -> None:
        it = cluster(faults)
        async with it.system:
            faults.system = it.system
            await scenario(it)

    run_seeded(seed, main)


async def scenario(it: Cluster) -> None:
    """One batch, one that cannot be, the same staged anew, and one that is asked for again."""
    logs = it.logs
    one, broken, two = logs.stage(1), logs.stage(2), logs.stage(2, 1)
    logs.state[broken.txns[1]] = "rolled back"
    done = await it.commit(one)
    assert isinstance(done, BatchCommitted)
    assert logs.states(one) == {"committed"}
    assert await it.commit(broken) in (WRONG, GONE)
    again = await it.commit(one)
    assert isinstance(again, BatchCommitted)
    assert again.already
    assert not again.ticks or again.ticks == done.ticks
    done = await it.commit(two)
    assert isinstance(done, BatchCommitted)
    assert done.batch == 2
    assert (logs.states(two), logs.states(broken)) == ({"committed"}, {"rolled back"})
    assert set(logs.commits.values()) <= {0, 1}
    assert "prepared" not in logs.state.values()
    (view,) = await it.views()
    assert (view.batch, view.under_way) == (2, -1)


def steps() -> int:
    faults = CommitFaults()
    run(faults, 1)
    return faults.steps


STEPS = steps()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "path", [ROOT, COMMITTER, TASKS, ""], ids=["all", "committer", "task", "error"]
)
def test_whoever_dies_at_whichever_step_a_batch_takes_effect_once_or_never(
    path: str, after: bool
) -> None:
    for at in range(1, STEPS + 1):
        faults = CommitFaults(frozenset({at}), after, path)
        run(faults, seed=at)
        assert faults.steps >= at


@pytest.mark.parametrize("path", [ROOT, COMMITTER, TASKS], ids=["all", "committer", "task"])
def test_what_dies_again_while_it_comes_back_comes_back_again(path: str) -> None:
    for at in range(1, STEPS + 1, 3):
        run(CommitFaults(frozenset({at, at + 1, at + 3}), at % 2 == 0, path), seed=at)


def test_a_batch_that_cannot_be_prepared_in_time_is_rolled_back_and_the_app_goes_on() -> None:
    async def main() -> None:
        it = cluster(CommitFaults(), timing=CommitTiming(prepare_s=3.0))
        async with it.system:
            one = it.logs.stage(1)
            it.logs.away.add(V[1])
            with pytest.raises(Refused, match="could not be prepared within"):
                await it.once(one)
            (view,) = await it.views()
            assert (view.batch, view.under_way, view.state) == (-1, 1, "aborting")
            with pytest.raises(Refused, match="could not be prepared"):
                await it.once(one)
            with pytest.raises(Refused, match="try again when it has ended"):
                await it.once(it.logs.stage(1, 1))
            it.logs.away.clear()
            assert isinstance(await it.commit(it.logs.stage(1, 2)), BatchCommitted)
            assert it.logs.states(one) == {"rolled back"}

    run_seeded(1, main)


def test_a_decision_outlasts_an_owner_that_is_away_and_who_asks_again_joins() -> None:
    async def main() -> None:
        it = cluster(CommitFaults())
        async with it.system:
            one = it.logs.stage(1)
            it.logs.away.add(V[1])
            answers: list[object] = []

            async def ask() -> None:
                answers.append(await it.commit(one))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.sleep(0.5)
                tasks.start_soon(ask)
                await anyio.sleep(0.5)
                it.logs.away.clear()
            assert answers[0] == answers[1]

    run_seeded(1, main)


@pytest.mark.parametrize("killed", ["", TASKS, COMMITTER, CUT_LOCK_PATH])
def test_no_cut_is_taken_between_two_commits_of_a_batch(killed: str) -> None:
    """Nor after a kill; one that asks waits, and may take its cut when the batch is whole."""

    async def main() -> None:
        it = cluster(CommitFaults())
        async with it.system, anyio.create_task_group() as tasks:
            it.logs.away_at = TxnCommand.COMMIT
            tasks.start_soon(it.commit, it.logs.stage(1))
            await anyio.sleep(0.5)
            assert sorted(it.logs.state.values()) == ["committed", "committed", "prepared"]
            if killed:
                paths = [entry.path for entry in it.system.statistics()]
                it.system.kill([path for path in paths if path.startswith(killed)][-1])
            await anyio.sleep(0.5)
            with pytest.raises(Refused, match="waited 3"):
                await it.hold()
            it.logs.away.clear()
            await anyio.sleep(5)
            held = await it.hold()
            assert set(it.logs.state.values()) == {"committed"}
            tasks.start_soon(it.commit, it.logs.stage(2))
            await anyio.sleep(0.5)
            assert set(it.logs.state.values()) == {"committed", "open"}
            assert await it.system.find(CUT_LOCK_PATH).ask(ReleaseHold(held.id), deadline_s=9)
            await anyio.sleep(0.5)
            assert set(it.logs.state.values()) == {"committed"}

    run_seeded(1, main)


def test_a_cut_does_not_wait_for_what_cannot_be_prepared() -> None:
    async def main() -> None:
        it = cluster(CommitFaults(), timing=CommitTiming(prepare_s=20))
        async with it.system, anyio.create_task_group() as tasks:
            it.logs.away.add(V[1])
            tasks.start_soon(it.commit, it.logs.stage(1))
            await anyio.sleep(5)
            held = await it.hold()
            await it.system.find(CUT_LOCK_PATH).ask(ReleaseHold(held.id), deadline_s=9)
            tasks.cancel_scope.cancel()

    run_seeded(1, main)


def test_there_are_limits_to_apps_to_commits_and_to_who_waits() -> None:
    async def main() -> None:
        limits = CommitterLimits(apps_max=2, under_way_max=1, callers_max=1)
        it = cluster(CommitFaults(), limits=limits)
        async with it.system, anyio.create_task_group() as tasks:
            await it.once(it.logs.stage(1, app="a"))
            it.logs.away.add(V[0])
            slow = it.logs.stage(2, app="b")
            tasks.start_soon(it.commit, slow)
            await anyio.sleep(0.1)
            with pytest.raises(Refused, match="callers wait for this commit already"):
                await it.once(slow)
            with pytest.raises(Refused, match="1 commits are in progress"):
                await it.once(it.logs.stage(3, app="a"))
            it.logs.away.clear()
            await anyio.sleep(10)
            with pytest.raises(Refused, match="2 apps are remembered already"):
                await it.once(it.logs.stage(4, app="c"))
            elsewhere = StagedTxn(VChannelName("x_1v0"), TxnId(1), 0, 0)
            with pytest.raises(Refused, match="on no pchannel"):
                await it.once(BatchCommit("a", 9, (elsewhere,)))

    run_seeded(1, main)


def test_a_commit_under_way_tells_its_state_and_how_long_it_takes() -> None:
    def counted(it: Cluster) -> dict[str, float]:
        (found,) = [each.extra for each in it.system.statistics() if each.path == COMMITTER]
        return {name: float(found[name]) for name in ("committing", "oldest_s", "committed")}

    async def main() -> None:
        it = cluster(CommitFaults())
        async with it.system, anyio.create_task_group() as tasks:
            it.logs.away_at = TxnCommand.COMMIT
            tasks.start_soon(it.commit, it.logs.stage(1))
            await anyio.sleep(3)
            (view,) = await it.views()
            assert (view.under_way, view.state, view.txns) == (1, "committing", len(V))
            assert 2900 <= view.age_ms <= 3000
            now = counted(it)
            assert (now["committing"], now["committed"]) == (1, 0)
            assert 2.9 <= now["oldest_s"] <= 3
            it.logs.away.clear()
            await anyio.sleep(5)
            (view,) = await it.views()
            assert (view.batch, view.state, view.age_ms) == (1, "", 0)
            assert counted(it) == {"committing": 0, "oldest_s": 0, "committed": 1}

    run_seeded(1, main)


def test_an_app_that_is_silent_is_forgotten_after_its_time() -> None:
    async def main() -> None:
        it = cluster(CommitFaults(), limits=CommitterLimits(app_age_ms=600_000, forget_s=60))
        async with it.system:
            await it.once(it.logs.stage(1, app="old"))
            await anyio.sleep(400)
            await it.once(it.logs.stage(1, app="new"))
            await anyio.sleep(400)
            assert [view.app for view in await it.views()] == ["new"]
            assert it.records() == [f"{APP_PREFIX}new"]

    run_seeded(1, main)


def test_an_empty_batch_counts() -> None:
    async def main() -> None:
        it = cluster(CommitFaults())
        async with it.system:
            assert not (await it.once(BatchCommit("job", 4, ()))).already
            assert (await it.once(it.logs.stage(4))).already

    run_seeded(1, main)
