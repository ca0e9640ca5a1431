"""Players for the tests of the runtime: actors that do what a message says and write it down."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from actors import (
    Actor,
    ChildSpec,
    Context,
    Envelope,
    Ref,
    Request,
    Strategy,
    SupervisorSpec,
    System,
    Terminated,
)
from actors.testing import VirtualClock, run_seeded

SEEDS = range(4)
LONG_S = 100.0


@dataclass(frozen=True, slots=True)
class Say(Request[str]):
    """Answered with name@term:text."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Hold(Request[str]):
    """Kept; answered with the text of the next Release."""


@dataclass(frozen=True, slots=True)
class Release:
    """Answer all that was held."""

    text: str = "released"


@dataclass(frozen=True, slots=True)
class Nap(Request[str]):
    """Answered after a while during which nothing else is handled."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Raise(Request[str]):
    """Crash."""

    error: BaseException = field(default_factory=lambda: ValueError("boom"))


@dataclass(frozen=True, slots=True)
class Ask(Request[str]):
    """Answered with name@term, at once; what the player does next is written down after it."""


@dataclass(frozen=True, slots=True)
class Fail(Request[str]):
    """Answer with an error, without a crash."""


@dataclass(frozen=True, slots=True)
class Resist(Request[str]):
    """Do not hear cancellation for a while."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Leave(Request[str]):
    """Stop by yourself."""


class Player(Actor[Any]):
    """Writes `name@term did` into a journal that outlives it."""

    def __init__(
        self,
        journal: list[str] | None = None,
        on_start: "Step | None" = None,
        on_stop: "Step | None" = None,
    ) -> None:
        self.journal = [] if journal is None else journal
        self.on_start = on_start
        self.on_stop = on_stop
        self.held: list[Envelope[Any]] = []
        self.heard: list[Any] = []
        self.batches: list[int] = []
        self.context: Context[Any]

    @property
    def name(self) -> str:
        return f"{self.context.path.rpartition('/')[2]}@{self.context.term}"

    def note(self, did: str) -> None:
        self.journal.append(f"{self.name} {did}")

    async def started(self, context: Context[Any]) -> None:
        self.context = context
        if self.on_start is not None:
            await self.on_start(self)
        self.note("started")

    async def receive(self, batch: Sequence[Envelope[Any]]) -> None:
        self.batches.append(len(batch))
        for envelope in batch:
            self.heard.append(envelope.message)
            await self.act(envelope)

    async def act(self, envelope: Envelope[Any]) -> None:
        match envelope.message:
            case Say() | Ask():
                self.speak(envelope)
            case Hold():
                self.held.append(envelope)
            case Release(text):
                for held in self.held:
                    held.reply(text)
            case Raise(error):
                raise error
            case Fail():
                envelope.fail(KeyError("not here"))
            case Leave():
                self.context.stop()
            case Nap() | Resist():
                await self.take_time(envelope)
            case Terminated(path, term, reason):
                self.note(f"saw {path}@{term} {reason}")
            case other:
                self.note(f"got {other}")

    def speak(self, envelope: Envelope[Say | Ask]) -> None:
        match envelope.message:
            case Say(text):
                envelope.reply(f"{self.name}:{text}")
            case Ask():
                envelope.reply_at_once(self.name)
                self.note("goes on")

    async def take_time(self, envelope: Envelope[Nap | Resist]) -> None:
        with anyio.CancelScope(shield=isinstance(envelope.message, Resist)):
            await self.context.clock.sleep(envelope.message.duration_s)
        envelope.reply("awake")

    async def stopped(self) -> None:
        self.note("stops")
        if self.on_stop is not None:
            await self.on_stop(self)
        self.note("stopped")

    def statistics(self) -> dict[str, int | float | str]:
        return {"heard": len(self.heard)}


Step = Callable[[Player], Awaitable[None]]


class Troupe:
    """A system of players with one journal; children by name, `/root` above them."""

    def __init__(
        self,
        *children: ChildSpec | SupervisorSpec | str,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.journal: list[str] = []
        self.players: list[Player] = []
        self.clock = VirtualClock()
        specs = tuple(self.child(c) if isinstance(c, str) else c for c in children)
        spec = SupervisorSpec("root", strategy, specs, **options)
        self.system = System(spec, clock=self.clock, random=Random(seed))

    def child(
        self,
        name: str,
        *,
        on_start: Step | None = None,
        on_stop: Step | None = None,
        **options: Any,
    ) -> ChildSpec:
        def build() -> Player:
            self.players.append(Player(self.journal, on_start, on_stop))
            return self.players[-1]

        return ChildSpec(name, build, **options)

    def player(self, name: str) -> Player:
        """The newest one of that name."""
        path = f"/root/{name}"
        return next(p for p in reversed(self.players) if p.context.path == path)

    def got(self) -> list[str]:
        return [line for line in self.journal if " got " in line]

    async def __aenter__(self) -> "Troupe":
        await self.system.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self.system.__aexit__(*exc_info)

    def ref(self, name: str) -> Ref[Any]:
        return self.system.find(f"/root/{name}")

    async def ask(self, name: str, message: Request[Any]) -> Any:
        return await self.ref(name).ask(message, deadline_s=LONG_S)

    def terms(self) -> dict[str, int]:
        return {s.path.removeprefix("/root/"): s.term for s in self.system.statistics()[1:]}

    def state(self, name: str) -> str:
        return next(s.state for s in self.system.statistics() if s.path == f"/root/{name}")


def seeded(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test under a few seeds, in virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        for seed in SEEDS:
            run_seeded(seed, lambda: test(*args, **kwargs))

    return run


async def settle(rounds: int = 300) -> None:
    """Let everything happen that needs no time."""
    for _ in range(rounds):
        await asyncio.sleep(0)
