"""An actor is asked whichever incarnation plays it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from actors import (
    Actor,
    ActorError,
    ChildSpec,
    Envelope,
    NoSuchActor,
    Request,
    SupervisorSpec,
    System,
)
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, Refused, StreamingCode


@dataclass(frozen=True, slots=True)
class Ask(Request[str | Refusal]):
    refuse: bool = False


class Answering(Actor[Ask]):
    """Answers, or refuses."""

    async def receive(self, batch: Sequence[Envelope[Ask]]) -> None:
        for envelope in batch:
            refusal = Refusal(StreamingCode.INNER, "no")
            envelope.reply(refusal if envelope.message.refuse else "yes")


def spec() -> SupervisorSpec:
    return SupervisorSpec("root", children=(ChildSpec("one", Answering),))


async def test_a_restarted_actor_answers_as_if_nothing_had_happened() -> None:
    async with System(spec()) as system:
        first = system.find("/root/one")
        proxy = Proxy(lambda: first if first_answers.pop() else system.find("/root/one"))
        first_answers = [False, False, True]
        assert await proxy.ask(Ask()) == "yes"
        first_answers = [False, True]
        system.kill("/root/one")
        assert await proxy.ask(Ask()) == "yes"


async def test_a_refusal_is_raised_when_demanded() -> None:
    async with System(spec()) as system:
        proxy = Proxy(lambda: system.find("/root/one"))
        assert await proxy.demand(Ask()) == "yes"
        with pytest.raises(Refused):
            await proxy.demand(Ask(refuse=True))


async def test_nobody_is_asked_for_long_when_there_is_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.edge.rpc.proxies.RESTART_PAUSE_S", 0.0)
    async with System(spec()) as system:
        with pytest.raises(NoSuchActor):
            await Proxy(lambda: system.find("/root/nobody")).ask(Ask())
        with pytest.raises(ActorError):
            Proxy(lambda: system.find("/root/nobody")).tell(Ask())
