"""The gate with both kinds of tokens."""

import pytest

from actors.testing import VirtualClock, run_seeded
from broker.core.security.access_book import AccessBook
from broker.core.security.jwt_rules import JwtRules
from broker.core.security.key_refresh import PAUSE_S, KeyRefresh
from broker.edge.access.jwt.jwt_tokens import JwtTokens
from broker.edge.access.jwt.key_ring import WAIT_S_MAX, KeyRing
from broker.edge.access.jwt.key_set import read_key_set
from broker.edge.rpc.access.gate import AccessGate
from broker.model.failure import Refusal, Refused
from tests.jwt_provider import AUDIENCE, ISSUER, NOW_S, claims, jwk, key_set, token


class World:
    def __init__(self) -> None:
        self.now_ms = NOW_S * 1000
        self.ring = KeyRing(KeyRefresh(300.0), VirtualClock().monotonic_s)
        self.ring.begin()
        self.ring.adopt(read_key_set(key_set(jwk("k1"))))
        self.ring.end()
        tokens = JwtTokens(JwtRules(ISSUER, AUDIENCE), self.ring)
        self.gate = AccessGate(lambda: self.now_ms, others=tokens)
        self.gate.adopt(AccessBook())


def test_a_call_with_a_jwt_ends_when_it_expires() -> None:
    async def main() -> list[Refusal]:
        world, ended = World(), list[Refusal]()
        header = {"authorization": f"Bearer {token(claims(exp=NOW_S + 60))}"}
        await world.gate.prepare(header)
        access = world.gate.enter(header, None)
        access.end = ended.append
        assert access.name == "jwt:ann"
        world.now_ms += 59_999
        world.gate.look()
        assert not ended
        world.now_ms += 1
        world.gate.look()
        with pytest.raises(Refused, match="expired"):
            world.gate.enter(header, None)
        return ended

    (refusal,) = run_seeded(1, main)
    assert "expired" in refusal.cause


def test_a_withdrawn_key_ends_the_calls_of_its_tokens_at_once_and_no_others() -> None:
    async def main() -> list[Refusal]:
        world, kept_ended, ended = World(), list[Refusal](), list[Refusal]()
        world.ring.on_change = world.gate.look
        both = jwk("k1"), jwk("k2", number=1)
        world.ring.adopt(read_key_set(key_set(*both)))
        kept = world.gate.enter({"authorization": f"Bearer {token(claims())}"}, None)
        kept.end = kept_ended.append
        header = {"authorization": f"Bearer {token(claims(), 'k2', number=1)}"}
        access = world.gate.enter(header, None)
        access.end = ended.append
        # The same keys in another order, and with one more.
        world.ring.adopt(read_key_set(key_set(jwk("k3", number=2), *reversed(both))))
        assert not ended
        # Another key of the same ID is another key.
        world.ring.adopt(read_key_set(key_set(jwk("k1"), jwk("k2", number=2))))
        assert not kept_ended
        with pytest.raises(Refused, match="not signed with the key"):
            world.gate.enter(header, None)
        return ended

    (refusal,) = run_seeded(1, main)
    assert "withdrew while the call was open" in refusal.cause


def test_a_key_that_is_for_one_other_algorithm_from_now_on_is_withdrawn() -> None:
    async def main() -> list[Refusal]:
        world, ended = World(), list[Refusal]()
        world.ring.adopt(read_key_set(key_set(jwk("r", "RS256"))))
        header = {"authorization": f"Bearer {token(claims(), 'r', 'RS256')}"}
        access = world.gate.enter(header, None)
        access.end = ended.append
        world.ring.adopt(read_key_set(key_set(jwk("r", "RS256", alg="PS256"))))
        world.gate.look()
        return ended

    assert len(run_seeded(1, main)) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"authorization": ""},
        {"authorization": b"Bearer x"},
        {"authorization": "Basic eDp5"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer tm_id_secret"},
        {"authorization": "Bearer no.jwt"},
        {"authorization": "Bearer " + "a" * 20_000},
        {"authorization": f"Bearer {token(claims())}"},
    ],
)
def test_only_a_jwt_of_an_unknown_key_makes_a_call_wait(metadata: dict[str, str | bytes]) -> None:
    async def main() -> tuple[float, float]:
        world, clock = World(), VirtualClock()
        await clock.sleep(PAUSE_S)
        await world.gate.prepare(metadata)
        first = clock.monotonic_s()
        await world.gate.prepare({"authorization": f"bearer {token(claims(), 'k2')}"})
        return first, clock.monotonic_s()

    assert run_seeded(1, main) == (PAUSE_S, PAUSE_S + WAIT_S_MAX)


def test_without_an_identity_provider_nothing_waits_and_jwts_are_refused() -> None:
    async def main() -> None:
        gate = AccessGate(lambda: 0)
        gate.adopt(AccessBook())
        header = {"authorization": f"Bearer {token(claims())}"}
        await gate.prepare(header)
        with pytest.raises(Refused, match="not authenticated"):
            gate.enter(header, None)

    run_seeded(1, main)
