"""Random plays under many seeds (`--plays N`); what the README promises must hold in each.

The naive model is the ledger: who handled which message, at which term, and what each asker got.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import pytest

from actors import (
    TEMPORARY,
    ActorError,
    Backoff,
    ChildSpec,
    Envelope,
    MailboxSpec,
    NoSuchActor,
    Overflow,
    Request,
    Restart,
    Strategy,
    SupervisorSpec,
    System,
)
from actors.testing import VirtualClock, run_seeded
from tests.actors.troupe import LONG_S, Player

BOUND = 4
NAMES = ("a", "b", "inner/c", "inner/d", "dynamic")


@dataclass(frozen=True, slots=True)
class Deed(Request[int]):
    """One numbered message, and what the player is to do with it."""

    number: int
    what: str
    takes_s: float = 0.0


@dataclass
class Ledger:
    """The model: everything that happened, in order."""

    handled: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    started: dict[str, list[int]] = field(default_factory=dict)
    outcomes: dict[int, object] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    depth_max: int = 0
    asked: int = 0


class Doer(Player):
    """Writes into the ledger and behaves as badly as it is told to."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.trace)
        self.ledger = ledger
        self.on_start = self.enter

    async def enter(self, _: Player) -> None:
        context = self.context
        self.ledger.started.setdefault(context.path, []).append(context.term)
        context.every(0.5, Deed(-1, "tick"))
        if context.random.random() < 0.1:
            raise OSError("a bad start")

    async def act(self, envelope: Envelope[Any]) -> None:
        deed = envelope.message
        if not isinstance(deed, Deed) or deed.number < 0:
            return
        whoami = (self.context.path, self.context.term)
        self.ledger.handled.setdefault(deed.number, []).append(whoami)
        self.note(f"does {deed.number} {deed.what}")
        await self.do(deed, envelope)

    async def do(self, deed: Deed, envelope: Envelope[Any]) -> None:
        match deed.what:
            case "answer":
                envelope.reply(deed.number)
            case "nap":
                await self.context.clock.sleep(deed.takes_s)
                envelope.reply(deed.number)
            case "keep":
                self.held.append(envelope)
                self.context.after(deed.takes_s, Deed(-1, "tick"))
            case "crash":
                raise ValueError("on purpose")
            case "leave":
                self.context.stop()
            case "resist":
                with anyio.CancelScope(shield=True):
                    await self.context.clock.sleep(deed.takes_s)
            case other:
                raise AssertionError(other)


class Play:
    """Askers, a saboteur, and somebody who adds and removes children."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.ledger = Ledger()
        self.system = System(self.tree(), clock=self.clock, random=Random(seed))

    def tree(self) -> SupervisorSpec:
        choose = self.random.choice
        inner = SupervisorSpec(
            "inner",
            choose(list(Strategy)),
            (self.child("c", choose(list(Restart)[:2])), self.child("d")),
            restarts_max=3,
            window_s=10,
            backoff=Backoff(0.1, 1.0),
        )
        return SupervisorSpec(
            "root",
            choose(list(Strategy)),
            (self.child("a"), self.child("b"), inner),
            restarts_max=10_000,
            backoff=Backoff(0.1, 1.0),
        )

    def child(self, name: str, restart: Restart = Restart.PERMANENT) -> ChildSpec:
        mailbox = MailboxSpec(BOUND, self.random.choice(list(Overflow)), self.random.randint(1, 6))
        return ChildSpec(
            name,
            lambda: Doer(self.ledger),
            mailbox,
            restart,
            stop_deadline_s=1.0,
            patient=self.random.random() < 0.8,
        )

    async def run(self) -> Ledger:
        try:
            async with self.system, anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(self.asker)
                tasks.start_soon(self.saboteur)
                tasks.start_soon(self.director)
        except OSError:
            self.ledger.trace.append("never started")
        return self.ledger

    async def asker(self) -> None:
        for _ in range(12):
            await self.clock.sleep(self.random.uniform(0, 0.7))
            number = self.ledger.asked = self.ledger.asked + 1
            doings = ("answer", "answer", "answer", "nap", "keep", "crash", "leave", "resist")
            deed = Deed(number, self.random.choice(doings), self.random.uniform(0, 3))
            self.ledger.outcomes[number] = await self.outcome(deed)
            depths = [s.mailbox_depth for s in self.system.statistics() if s.kind == "actor"]
            self.ledger.depth_max = max(self.ledger.depth_max, *depths)

    async def outcome(self, deed: Deed) -> object:
        """What came of it: an answer, an error of ours, or None where none is due."""
        verb = self.random.choice(("ask", "ask", "tell", "send", "leave early"))
        deadline_s = self.random.uniform(0.1, 5)
        try:
            ref = self.system.find(f"/root/{self.random.choice(NAMES)}")
            match verb:
                case "ask":
                    return await ref.ask(deed, deadline_s=deadline_s)
                case "tell":
                    ref.tell(deed)
                case "send":
                    await ref.send(deed, deadline_s=deadline_s)
                case _:
                    with anyio.move_on_after(deadline_s):
                        await ref.ask(deed, deadline_s=LONG_S)
        except ActorError as error:
            return error
        return None

    async def saboteur(self) -> None:
        for _ in range(10):
            await self.clock.sleep(self.random.uniform(0, 1))
            try:
                self.system.kill(f"/root/{self.random.choice((*NAMES, 'inner'))}")
            except NoSuchActor:
                continue

    async def director(self) -> None:
        for _ in range(6):
            restart = self.random.choice((TEMPORARY, Restart.PERMANENT))
            for step in (
                lambda: self.system.start_child("/root", self.child("dynamic", restart)),  # noqa: B023
                lambda: self.system.stop_child("/root/dynamic"),
            ):
                await self.clock.sleep(self.random.uniform(0, 1))
                try:
                    await step()
                except (ActorError, OSError) as error:
                    self.ledger.trace.append(str(error))


def play(seed: int) -> tuple[Play, Ledger]:
    staged: list[Play] = []

    async def main() -> Ledger:
        staged.append(Play(seed))
        return await staged[0].run()

    ledger = run_seeded(seed, main)
    return staged[0], ledger


@pytest.fixture(scope="module")
def plays(request: pytest.FixtureRequest) -> list[tuple[Play, Ledger]]:
    """A run that hangs, or leaves somebody without an answer, is a Deadlock here."""
    return [play(seed) for seed in range(request.config.getoption("--plays"))]


def test_every_asker_gets_an_answer(plays: list[tuple[Play, Ledger]]) -> None:
    for _, ledger in plays:
        assert len(ledger.outcomes) == ledger.asked
        for number, outcome in ledger.outcomes.items():
            assert outcome is None or isinstance(outcome, ActorError) or outcome == number


def test_terms_only_grow(plays: list[tuple[Play, Ledger]]) -> None:
    for _, ledger in plays:
        for path, terms in ledger.started.items():
            if path != "/root/dynamic":
                assert terms == sorted(set(terms)), path


def test_no_message_is_handled_by_two_incarnations(plays: list[tuple[Play, Ledger]]) -> None:
    for _, ledger in plays:
        assert all(len(who) == 1 for who in ledger.handled.values())


def test_nothing_grows_without_a_bound(plays: list[tuple[Play, Ledger]]) -> None:
    senders_and_timers = 12 + 13
    for staged, ledger in plays:
        assert ledger.depth_max <= BOUND + senders_and_timers
        assert staged.system._ground.running == {}
        assert all(s.mailbox_depth == 0 for s in staged.system.statistics())


def test_the_plays_are_worth_watching(plays: list[tuple[Play, Ledger]]) -> None:
    """Enough of everything happened for the tests above to mean something."""
    ledgers = [ledger for _, ledger in plays]
    errors = {type(o).__name__ for ledger in ledgers for o in ledger.outcomes.values()}
    assert {"ActorDied", "AskTimeout", "MailboxFull", "NotRunning", "int"} <= errors
    assert sum(len(ledger.handled) for ledger in ledgers) > 7 * len(ledgers)
    assert sum(max(ledger.started.get("/root/a", [0])) for ledger in ledgers) > 2 * len(ledgers)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_replays_the_same_run(seed: int) -> None:
    assert play(seed)[1].trace == play(seed)[1].trace
