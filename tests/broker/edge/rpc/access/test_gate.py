"""Who calls, by which proof; and which open calls end when something is revoked."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker.core.security.access_book import AccessBook, Origin, Principal, Role, User
from broker.core.security.grants import Action, Resource, ResourceKind, parsed_grant
from broker.edge.access.new_token import new_token
from broker.edge.rpc.access.access import UNCONTROLLED, Access
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.edge.rpc.access.gate import AccessGate
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.ports.row_schemas import NoRowSchemas, NoShard, Shard

pytestmark = pytest.mark.asyncio

SECRET = "0" * 64
CONSUME = frozenset({Action.CONSUME})
TEXT, TOKEN = new_token("ann", made_ms=1, expires_ms=5000)
P0 = "by-dev-rootcoord-dml_0"
ORDERS, OTHER = f"{P0}_1v0", f"{P0}_2v0"


class Certified:
    """A peer with a certificate of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def addr(self) -> tuple[object, ...]:
        return "127.0.0.1", 1

    def cert(self) -> dict[str, object]:
        return {"subject": ((("commonName", self._name),),)}


class Catalog(NoRowSchemas):
    """One collection; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.known = {ORDERS: Shard("orders", rows=False)}

    async def shard(self, vchannel: str) -> Shard | NoShard:
        self.asked += 1
        return self.known.get(vchannel, NoShard.OTHER)


class World:
    """A gate with a clock, and the refusals with which calls were ended."""

    def __init__(self, *, secret: str = SECRET) -> None:
        self.now_ms = 1000
        self.catalog = Catalog()
        self.gate = AccessGate(lambda: self.now_ms, secret=secret)
        self.gate.names = CollectionNames(self.catalog, "by-dev")
        role = Role("r", (parsed_grant("consume:collection:orders"),))
        self.book = AccessBook(
            {"ann": User("ann", ("r",))}, {"r": role}, {TOKEN.id: TOKEN}, epoch=1
        )
        self.ended: list[Refusal] = []

    def enter(self, metadata: Mapping[str, str | bytes], name: str = "") -> Access:
        access = self.gate.enter(metadata, Certified(name) if name else None)
        access.end = self.ended.append
        return access

    def refused(self, metadata: Mapping[str, str | bytes], name: str = "") -> str:
        with pytest.raises(Refused) as refused:
            self.enter(metadata, name)
        assert refused.value.refusal.code is StreamingCode.NOT_AUTHENTICATED
        return refused.value.refusal.cause


@pytest.fixture
async def world() -> World:
    made = World()
    made.gate.adopt(made.book)
    return made


BEARER = {"authorization": f"Bearer {TEXT}"}


async def test_without_a_book_nobody_is_asked() -> None:
    world = World()
    assert not world.gate.controls
    access = world.gate.enter({"authorization": "Bearer nonsense"}, None)
    assert access is UNCONTROLLED
    await access.need_channel(CONSUME, OTHER)
    assert (await access.sight())(Resource(ResourceKind.GROUP, "g"))
    assert access.lost() is None


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   "])
async def test_a_token_proves_its_user(world: World, scheme: str) -> None:
    assert world.enter({"authorization": scheme + TEXT}).name == "ann"


@pytest.mark.parametrize(
    "header",
    [
        "TOKEN",
        "Basic TOKEN",
        "Bearer ",
        "Bearer tm_x",
        "Bearer TOKENx",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        b"Bearer x",
    ],
)
async def test_a_proof_that_is_none_is_refused_and_no_other_is_tried(
    world: World, header: str | bytes
) -> None:
    shown = header.replace("TOKEN", TEXT) if isinstance(header, str) else header
    cause = world.refused({"authorization": shown}, "ann")
    assert "the token is not known, or it has expired or was revoked" in cause
    assert TEXT not in cause


async def test_a_proof_that_is_very_long_is_refused_unread(world: World) -> None:
    world.refused({"authorization": "Bearer " + "x" * 20_000}, "ann")


async def test_without_any_proof_the_refusal_says_how_to_give_one(world: World) -> None:
    for name in ("", "eve"):
        assert "pass a token" in world.refused({}, name)


async def test_a_certificate_proves_a_user_of_its_name(world: World) -> None:
    access = world.enter({}, "ann")
    assert access.principal == Principal("ann", Origin.CERTIFICATE)


async def test_processes_of_the_cluster_show_its_secret_and_may_do_everything(world: World) -> None:
    for shown in (SECRET, SECRET.encode()):
        access = world.enter({"tidemark-process": shown})
        assert access.of_process
        await access.need_channel(CONSUME, OTHER)
    assert "is not that of this cluster" in world.refused({"tidemark-process": "x", **BEARER})
    # No secret is no secret that an empty one fits.
    bare = World(secret="")
    bare.gate.adopt(bare.book)
    assert "is not that of this cluster" in bare.refused({"tidemark-process": ""})


async def test_other_tokens_are_shown_to_the_other_way(world: World) -> None:
    shown: list[str] = []
    withdrawn: dict[str, Refusal] = {}

    class Others:
        async def prepare(self, token: str) -> None:
            shown.append(f"prepared {token}")

        def lost(self, principal: Principal) -> Refusal | None:
            return withdrawn.get(principal.token)

        def __call__(self, token: str, now_ms: int) -> Principal | None:
            shown.append(token)
            assert now_ms == world.now_ms
            jane = Principal("jane", Origin.OTHER, "key", roles=("r",))
            return jane if token == "good" else None

    world.gate.others = Others()
    for header in ({}, BEARER, {"authorization": "Bearer good"}):
        await world.gate.prepare(header)
    access = world.enter({"authorization": "Bearer good"})
    await access.need_channel(CONSUME, ORDERS)
    world.refused({"authorization": "Bearer bad"})
    world.enter(BEARER)
    world.refused({"authorization": "Bearer tm_bad"})
    assert shown == ["prepared good", "good", "bad"]

    world.enter(BEARER)
    world.gate.look()
    assert world.ended == []
    withdrawn["key"] = Refusal(StreamingCode.NOT_AUTHENTICATED, "withdrawn")
    world.gate.look()
    assert world.ended == [withdrawn["key"]], "our own tokens have no such key"


async def test_a_channel_is_allowed_by_its_collection_and_looked_up_once(world: World) -> None:
    access = world.enter(BEARER)
    assert not access.holds(CONSUME, ORDERS)
    await access.need_channel(CONSUME, ORDERS)
    assert access.holds(CONSUME, ORDERS)
    await access.need_channel(CONSUME, ORDERS)
    assert world.catalog.asked == 1
    with pytest.raises(Refused) as refused:
        await access.need_channel(CONSUME, OTHER)
    assert refused.value.refusal.code is StreamingCode.PERMISSION_DENIED
    assert not access.holds(CONSUME, OTHER)


async def test_a_name_too_long_for_a_channel_is_neither_looked_up_nor_remembered(
    world: World,
) -> None:
    access, long = world.enter(BEARER), ORDERS + "0" * 300
    assert (await world.gate.names.channel(long)).name == long
    with pytest.raises(Refused, match="at most 256 characters") as refused:
        await access.need_channel(CONSUME, long)
    assert refused.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    assert world.catalog.asked == 0
    assert not access.holds(CONSUME, long)


async def test_a_refusal_does_not_tell_a_hidden_name_from_one_that_is_not_there(
    world: World,
) -> None:
    access = world.enter(BEARER)
    world.catalog.known[OTHER] = Shard("secret", rows=False)
    hidden = await access.refusal(CONSUME, OTHER)
    absent = await access.refusal(CONSUME, f"{P0}_3v0")
    assert hidden is not None
    assert absent is not None
    assert (hidden.code, hidden.cause.replace("_2v0", "_3v0")) == (absent.code, absent.cause)
    assert "secret" not in hidden.cause


async def test_revoking_a_token_ends_what_it_opened_and_nothing_else(world: World) -> None:
    world.enter(BEARER)
    other = world.enter({}, "ann")
    other_ended: list[Refusal] = []
    other.end = other_ended.append
    world.gate.adopt(replace(world.book, tokens={}, epoch=2))
    assert [it.code for it in world.ended] == [StreamingCode.NOT_AUTHENTICATED]
    assert other_ended == []


async def test_a_token_that_expires_ends_what_it_opened_without_a_new_book(world: World) -> None:
    world.enter(BEARER)
    world.now_ms = 4999
    world.gate.look()
    assert world.ended == []
    world.now_ms = 5000
    world.gate.look()
    assert [it.code for it in world.ended] == [StreamingCode.NOT_AUTHENTICATED]


async def test_a_lost_grant_ends_only_calls_that_have_used_it(world: World) -> None:
    idle, using = world.enter(BEARER), world.enter(BEARER)
    idle_ended: list[Refusal] = []
    idle.end = idle_ended.append
    await using.need_channel(CONSUME, ORDERS)
    changed = Role("r", (parsed_grant("produce:collection:orders"),))
    world.gate.adopt(replace(world.book, roles={"r": changed}, epoch=2))
    assert [it.code for it in world.ended] == [StreamingCode.PERMISSION_DENIED]
    assert idle_ended == []


async def test_a_call_that_has_left_is_not_ended(world: World) -> None:
    access = world.enter(BEARER)
    world.gate.leave(access)
    world.gate.adopt(AccessBook(epoch=2))
    assert world.ended == []


async def test_a_change_that_takes_nothing_ends_nothing(world: World) -> None:
    access = world.enter(BEARER)
    await access.need_channel(CONSUME, ORDERS)
    world.gate.adopt(replace(world.book, users={**world.book.users, "bob": User("bob", ())}))
    assert world.ended == []
    assert access.holds(CONSUME, ORDERS)
