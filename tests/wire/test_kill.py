"""tidemark.v1.Admin.Kill: one actor ends and comes back; whom it may not kill, and where."""

import anyio
import anyio.lowlevel
import grpc
import pytest

from broker.edge.tidemark.kill_actor import kill_actor
from broker.edge.tidemark.process_view import ProcessView
from broker.model.failure import Refused
from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.peer import ANSWER_S, Peer, ended
from tests.wire.small_broker import SmallBroker

ADMIN = "/tidemark.v1.Admin/"
ORACLE = "/root/coordinator/oracle"
CATALOG = "/root/coordinator/catalog"


async def killed(peer: Peer, path: str, term: int = 0) -> int:
    answer = await peer.call(ADMIN + "Kill", bytes(v1.KillRequest(path=path, term=term)))
    return v1.KillResponse.parse(answer).term


async def refusal(peer: Peer, path: str, term: int = 0) -> tuple[Code, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await killed(peer, path, term)
    error = ended(caught.value).error
    assert error is not None
    return Code(error.code), error.cause


async def terms(peer: Peer, path: str = "") -> dict[str, int]:
    answer = await peer.call(ADMIN + "Actors", bytes(v1.ActorsRequest(path=path)))
    return {it.path: it.term for it in v1.ActorsResponse.parse(answer).actors}


async def until_at(peer: Peer, path: str, term: int) -> None:
    with anyio.fail_after(ANSWER_S):
        while (await terms(peer, path))[path] < term:
            await anyio.lowlevel.checkpoint()


async def test_a_killed_actor_comes_back_one_term_later(peer: Peer) -> None:
    assert await killed(peer, ORACLE) == 1
    await until_at(peer, ORACLE, 2)
    assert await killed(peer, ORACLE, term=2) == 2
    await until_at(peer, ORACLE, 3)


async def test_an_incarnation_that_is_gone_already_is_not_killed_again(peer: Peer) -> None:
    code, cause = await refusal(peer, ORACLE, term=7)
    assert code is Code.UNMATCHED_CHANNEL_TERM
    assert "is at term 1, not 7" in cause
    assert (await terms(peer, ORACLE)) == {ORACLE: 1}


@pytest.mark.parametrize(
    "path", ["", "/", "nonsense", "/root/", "/root/nobody", "/root//coordinator", f"{ORACLE}/x"]
)
async def test_a_path_where_nobody_lives_is_refused(peer: Peer, path: str) -> None:
    before = await terms(peer)
    code, _ = await refusal(peer, path)
    assert code in (Code.INVALID_ARGUMENT, Code.UNRECOVERABLE)
    assert await terms(peer) == before


async def test_the_root_is_not_killed(peer: Peer) -> None:
    code, cause = await refusal(peer, "/root")
    assert code is Code.UNRECOVERABLE
    assert "stop the server instead" in cause


async def test_who_waits_for_its_restart_cannot_be_killed_yet(broker: SmallBroker) -> None:
    view = ProcessView(broker.system, chaos_allowed=True)
    assert kill_actor(view, ORACLE, 0) == 1
    with pytest.raises(Refused) as caught:
        kill_actor(view, ORACLE, 0)
    assert caught.value.refusal.code is Code.INNER


async def test_a_server_that_was_not_told_to_allow_it_kills_nobody(broker: SmallBroker) -> None:
    with pytest.raises(Refused) as caught:
        kill_actor(ProcessView(broker.system), ORACLE, 0)
    assert caught.value.refusal.code is Code.UNRECOVERABLE
    assert "--allow-chaos" in caught.value.refusal.cause
    assert broker.system.find(ORACLE).term == 1


async def test_actors_are_given_from_a_path_on(peer: Peer) -> None:
    assert await terms(peer, "/root/coordinator/") == await terms(peer, "/root/coordinator")
    assert set(await terms(peer, "/root/coordinator")) > {"/root/coordinator", ORACLE, CATALOG}
    assert await terms(peer, "/root/coord") == {}
