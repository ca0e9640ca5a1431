"""Commits of batches: each rule once, and whole lives of them with crashes at every step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.txn.batch_commit import (
    COMMANDS,
    ONE_RUN_MS,
    TICKS_MAX,
    TXNS_MAX,
    AppRecord,
    CommitAttempt,
    CommitState,
    CommittedBatch,
    aborted,
    advanced,
    answer_at_once,
    commit_problem,
    expired_apps,
    finished,
    started,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, TimeTick, TxnId, VChannelName
from broker.model.message import Appended
from broker.model.stage import ONE_RUN_PREFIX, BatchCommit, BatchCommitted, StagedTxn, TxnCommand
from tests.cases import cases

V = tuple(VChannelName(f"by-dev-dml_{number}_1v0") for number in range(3))
GONE, WRONG = StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE
INNER, BAD = StreamingCode.INNER, StreamingCode.INVALID_ARGUMENT
PREPARING, COMMITTING = CommitState.PREPARING, CommitState.COMMITTING
NEW = AppRecord("job")


def txn(number: int, part: int = 0, attempt: int = 0) -> StagedTxn:
    return StagedTxn(V[number % 3], TxnId(100 + number), part, attempt)


TXNS = (txn(0), txn(1), txn(2, 1))
ASKED = BatchCommit("job", 7, TXNS)


def landed(tick: int = 9) -> Appended:
    return Appended(MessageId(1), TimeTick(tick), MessageId(1))


def refused(code: StreamingCode) -> Refusal:
    return Refusal(code, "no")


def attempt_of(known: AppRecord) -> CommitAttempt:
    assert known.attempt is not None
    return known.attempt


def after(attempt: CommitAttempt, *outcomes: Appended | Refusal) -> CommitAttempt:
    return advanced(attempt, dict(zip(TXNS, outcomes, strict=False)))


def test_it_is_committed_when_all_are_prepared_and_done_when_all_are_committed() -> None:
    preparing = attempt_of(started(NEW, ASKED, 1))
    assert (preparing.vchannels, preparing.token) == (V, 1)
    some = after(preparing, landed(), refused(INNER))
    assert (some.state, some.unanswered, some.complete) == (PREPARING, frozenset(TXNS[1:]), False)
    committing = after(some, *[landed()] * 3)
    assert (committing.state, committing.unanswered) == (COMMITTING, frozenset(TXNS))
    some = after(committing, landed(20), refused(INNER), refused(GONE))
    assert (some.unanswered, some.complete) == (frozenset(TXNS[1:2]), False)
    ended = advanced(some, {TXNS[1]: landed(30)})
    assert ended.complete
    remembered = finished(replace(NEW, attempt=ended), 55)
    assert remembered == AppRecord(
        "job", CommittedBatch(7, {V[0]: TimeTick(20), V[1]: TimeTick(30)}, 55)
    )
    assert remembered.outcome(already=False).batch == 7


@pytest.mark.parametrize("code", [GONE, WRONG, BAD, StreamingCode.UNRECOVERABLE])
def test_one_that_cannot_be_prepared_aborts_all(code: StreamingCode) -> None:
    aborting = after(attempt_of(started(NEW, ASKED, 1)), landed(), refused(code))
    assert (aborting.state, aborting.unanswered) == (CommitState.ABORTING, frozenset(TXNS))
    assert aborting.refusal is not None
    assert aborting.refusal.code is code
    assert aborting.refusal.cause.startswith("nothing of batch 7 is committed: transaction 101 of")
    known = replace(NEW, attempt=aborting)
    assert answer_at_once(known, ASKED) == aborting.refusal
    ended = after(aborting, landed(), refused(GONE), refused(WRONG))
    assert finished(replace(NEW, attempt=ended), 5) is None
    before = AppRecord("job", CommittedBatch(6, {}, 1), ended)
    assert finished(before, 5) == replace(before, attempt=None)


def test_what_is_not_prepared_in_time_is_rolled_back_and_cannot_be_asked_for_again() -> None:
    aborting = aborted(attempt_of(started(NEW, ASKED, 1)), "too long")
    assert aborting.refusal == Refusal(GONE, "too long")
    still = after(aborting, refused(INNER), landed(), refused(INNER))
    assert still.unanswered == {TXNS[0], TXNS[2]}


def test_what_a_damaged_log_has_lost_is_named() -> None:
    committing = after(attempt_of(started(NEW, ASKED, 1)), *[landed()] * 3)
    ended = after(committing, landed(), refused(WRONG), landed())
    assert (ended.complete, ended.lost) == (True, (TXNS[1],))


def test_of_very_many_vchannels_it_is_not_remembered_where_they_were_committed() -> None:
    many = {VChannelName(f"v{number}"): TimeTick(1) for number in range(TICKS_MAX + 1)}
    ended = CommitAttempt(ASKED, COMMITTING, frozenset(), ticks=many)
    assert finished(replace(NEW, attempt=ended), 5) == AppRecord("job", CommittedBatch(7, {}, 5))


def test_an_empty_batch_is_a_batch() -> None:
    empty = attempt_of(started(NEW, BatchCommit("job", 7, ()), 1))
    assert (empty.complete, advanced(empty, {}).complete) == (False, True)


def test_what_an_app_that_asks_is_told() -> None:
    done = AppRecord("job", CommittedBatch(7, {V[0]: TimeTick(3)}, 1))
    assert answer_at_once(NEW, ASKED) is None
    for batch in (6, 7):
        told = answer_at_once(done, replace(ASKED, batch=batch))
        assert told == BatchCommitted("job", 7, {V[0]: TimeTick(3)}, True)
    assert answer_at_once(done, replace(ASKED, batch=8)) is None
    busy = started(done, replace(ASKED, batch=8), 1)
    assert answer_at_once(busy, BatchCommit("job", 8, TXNS[::-1])) is None
    for other in (replace(ASKED, batch=9), BatchCommit("job", 8, TXNS[:1])):
        refusal = answer_at_once(busy, other)
        assert isinstance(refusal, Refusal)
        assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
    assert isinstance(answer_at_once(busy, ASKED), BatchCommitted)


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        (BatchCommit("", 7, ()), "name of the app is empty"),
        (BatchCommit("a\n", 7, ()), "cannot be shown"),
        (BatchCommit("x" * 257, 7, ()), "257 bytes"),
        (BatchCommit("job", -1, ()), "batch is -1"),
        (BatchCommit("job", 1 << 63, ()), "fit 63 bits"),
        (BatchCommit("job", 7, (txn(0, -1),)), "part is -1"),
        (BatchCommit("job", 7, (txn(0), txn(0))), "named twice"),
        (BatchCommit("job", 7, (txn(0), txn(1, 0, 1))), "part 0 has transactions of attempts 0"),
        (BatchCommit("job", 7, tuple(map(txn, range(TXNS_MAX + 1)))), "at most 8192"),
    ],
)
def test_what_can_never_be_is_refused(commit: BatchCommit, why: str) -> None:
    assert why in commit_problem(commit)
    assert commit_problem(ASKED) == ""


def test_apps_that_are_silent_for_long_are_forgotten() -> None:
    old, new = (
        AppRecord("old", CommittedBatch(1, {}, 1000)),
        AppRecord("new", CommittedBatch(1, {}, 5000)),
    )
    busy = started(AppRecord("busy", CommittedBatch(1, {}, 1000)), BatchCommit("busy", 2, ()), 1)
    assert expired_apps([old, new, busy, NEW], 6000, 4000) == (old,)


def test_an_app_of_one_run_is_forgotten_when_that_run_asks_no_more() -> None:
    once, job = (AppRecord(it, CommittedBatch(0, {}, 1000)) for it in (f"{ONE_RUN_PREFIX}a", "job"))
    month_ms = 30 * 24 * 3600 * 1000
    assert expired_apps([once, job], 1000 + ONE_RUN_MS, month_ms) == ()
    assert expired_apps([once, job], 1001 + ONE_RUN_MS, month_ms) == (once,)
    assert expired_apps([once, job], 6000, 4000) == (once, job)


@dataclass
class Log:
    """A naive participant: each transaction is open, prepared, committed, rolled back."""

    state: dict[StagedTxn, str] = field(default_factory=lambda: dict.fromkeys(TXNS, "open"))
    forgotten: set[StagedTxn] = field(default_factory=set)
    commits: dict[StagedTxn, int] = field(default_factory=lambda: dict.fromkeys(TXNS, 0))

    def hear(self, word: TxnCommand, txn: StagedTxn) -> Appended | Refusal:
        if txn in self.forgotten:
            return refused(GONE)
        now = self.state[txn]
        becomes = {
            ("open", TxnCommand.PREPARE): "prepared",
            ("prepared", TxnCommand.PREPARE): "prepared",
            ("prepared", TxnCommand.COMMIT): "committed",
            ("committed", TxnCommand.COMMIT): "committed",
            ("open", TxnCommand.ABORT): "rolled back",
            ("prepared", TxnCommand.ABORT): "rolled back",
            ("rolled back", TxnCommand.ABORT): "rolled back",
            ("open", TxnCommand.ABORT_UNPREPARED): "rolled back",
            ("rolled back", TxnCommand.ABORT_UNPREPARED): "rolled back",
        }.get((now, word))
        if becomes is None:
            return refused(WRONG)
        self.commits[txn] += becomes == "committed" != now
        self.state[txn] = becomes
        return landed()

    def expire(self, txn: StagedTxn) -> None:
        if self.state[txn] == "open":
            self.state[txn] = "rolled back"

    def forget(self, txn: StagedTxn) -> None:
        if self.state[txn] in ("committed", "rolled back"):
            self.forgotten.add(txn)


@dataclass
class Coordinator:
    """The record of one app, what an incarnation knows beside it, and its words still on the way.

    Killed before and after each record: `saved` False is a record that was not written.
    """

    log: Log
    record: AppRecord = NEW
    attempt: CommitAttempt | None = None
    late: list[tuple[TxnCommand, StagedTxn]] = field(default_factory=list)
    told: list[object] = field(default_factory=list)

    def ask(self) -> None:
        verdict = answer_at_once(self.record, ASKED)
        if verdict is not None:
            self.told.append(verdict)
        elif self.record.attempt is None:
            self.record = started(self.record, ASKED, 1)
            self.attempt = self.record.attempt

    def say(self, fates: str, *, dies: bool) -> None:
        """One round: each of those who are left hears it and answers, or does one of the two."""
        if self.attempt is None:
            return
        word, outcomes = COMMANDS[self.attempt.state], {}
        for txn, fate in zip(sorted(self.attempt.unanswered), fates, strict=False):
            if fate == "l":
                self.late.append((word, txn))
            elif fate in "ha":
                answer = self.log.hear(word, txn)
                if fate == "a":
                    outcomes[txn] = answer
        self.save(advanced(self.attempt, outcomes), dies=dies)

    def save(self, attempt: CommitAttempt, *, dies: bool) -> None:
        known = replace(self.record, attempt=attempt)
        if dies and len(self.late) % 2:
            self.die()
            return
        assert self.attempt is not None
        if attempt.state is not self.attempt.state:
            self.record = known
        self.attempt = attempt
        if attempt.complete:
            self.record = finished(known, 1) or NEW
            self.attempt = None
        if dies:
            self.die()

    def die(self) -> None:
        """The next one knows the record, and nothing else."""
        found = self.record.attempt
        self.attempt = found and CommitAttempt(
            found.commit, found.state, frozenset(found.commit.txns), found.refusal
        )


FATES = st.text("ahln", min_size=3, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("say"), FATES, st.booleans()),
    st.tuples(st.sampled_from(("ask", "die", "expire", "forget", "late", "give up", "too late"))),
)


@settings(max_examples=cases(600))
@given(st.lists(STEPS, max_size=25), st.lists(st.integers(0, 50), min_size=25, max_size=25))
def test_whoever_is_killed_when_all_of_a_batch_takes_effect_once_or_nothing(
    steps: list[tuple[str, str, bool] | tuple[str]], numbers: list[int]
) -> None:
    log = Log()
    coordinator = Coordinator(log)
    coordinator.ask()
    for step, number in zip(steps, numbers, strict=False):
        if len(step) == 3:
            coordinator.say(step[1], dies=step[2])
        else:
            acts(coordinator, number)[step[0]]()
        check(coordinator)
    while coordinator.attempt is not None:
        coordinator.say("aaa", dies=False)
    while coordinator.late:
        acts(coordinator, 0)["late"]()
    check(coordinator)
    assert "prepared" not in log.state.values()
    committed = coordinator.record.done is not None
    assert [count == committed for count in log.commits.values()] == [True] * 3


def acts(coordinator: Coordinator, number: int) -> Mapping[str, Callable[[], object]]:
    log, txn = coordinator.log, TXNS[number % 3]

    def late() -> None:
        if coordinator.late:
            log.hear(*coordinator.late.pop(number % len(coordinator.late)))

    def too_late() -> None:
        attempt = coordinator.attempt
        if attempt is not None and attempt.state is PREPARING:
            coordinator.save(aborted(attempt, "too long"), dies=False)

    def forget() -> None:
        """A log forgets what ended a while ago, when it is asked about it no more."""
        log.forget(txn)

    return {
        "ask": coordinator.ask,
        "die": coordinator.die,
        "expire": lambda: log.expire(txn),
        "forget": forget,
        "late": late,
        "give up": lambda: log.hear(TxnCommand.ABORT_UNPREPARED, txn),
        "too late": too_late,
    }


def check(coordinator: Coordinator) -> None:
    """Nothing is ever committed twice, and nothing beside what has been rolled back."""
    states = set(coordinator.log.state.values())
    assert not {"committed", "rolled back"} <= states
    assert max(coordinator.log.commits.values()) <= 1
    decided = coordinator.record.attempt
    if "committed" in states and coordinator.record.done is None:
        assert decided is not None
        assert decided.state is COMMITTING
