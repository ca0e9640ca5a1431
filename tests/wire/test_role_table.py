"""The page of permissions is what a broker does: each call of each service, for each role."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.core.security.access_book import BUILT_IN
from broker.core.security.book_changes import with_token, with_user
from broker.edge.access.new_token import new_token
from broker.edge.rpc.access.permissions import PERMISSIONS
from schemas.batches import Landed
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.properties.broadcast_header import BroadcastHeader
from schemas.wire import Produced, scan_consume_response
from tests.create_headers import create_header
from tests.wire.broadcasting import request as broadcast
from tests.wire.controlled import ADMIN, Controlled, controlled
from tests.wire.peer import Ended, Peer, PeerStream, connected
from tests.wire.small_broker import FIRST_TERM, P0
from tests.wire.test_access import ACK, DENIED, NOT_HERE, UNKNOWN, code, named, outcome, producing
from tests.wire.test_access import said as produced
from tests.wire.test_append import APPEND, batch, told
from tests.wire.test_consume import request
from tests.wire.test_read import READ

PAGE = Path(__file__).parents[2] / "broker" / "edge" / "PERMISSIONS.md"
ROW = re.compile(r"^\| `([\w./]+)` \| (.*) \|$", re.MULTILINE)
ROLES = ("", "reader", "writer", "observer", "admin")
MILVUS = "/milvus.proto.streaming.StreamingNodeHandlerService/"
BROADCAST = "/milvus.proto.streaming.StreamingCoordBroadcastService/Broadcast"
JOIN = "/tidemark.v1.Groups/Join"
IN_STREAMS = {f"{MILVUS}Produce", f"{MILVUS}Consume", BROADCAST, APPEND, READ, JOIN}
"""Asked for inside."""
ENDLESS = ("/AssignmentDiscover", "/Watch", "/WatchBarrier")
"""Streams that everybody with a proof, or who may use barriers, may open; they do not end."""


@asynccontextmanager
async def world(role: str) -> AsyncIterator[tuple[Peer, str, Mapping[str, str], Mapping[str, str]]]:
    """A peer, a vchannel, and the proofs of a user of the role and of an administrator."""
    async with controlled() as here, connected(here.broker) as peer:
        vchannel = await trains(peer, here.proof(ADMIN))
        await add(here, role)
        yield peer, vchannel, here.proof(f"of_{role}"), here.proof(ADMIN)


def rows() -> Mapping[str, tuple[str, ...]]:
    """The answers of the page by call, in the order of ROLES."""
    found = ROW.findall(PAGE.read_text())
    return {f"/{path}": tuple(cells.split(" | ")[1:]) for path, cells in found}


async def add(here: Controlled, role: str) -> None:
    text, token = new_token(f"of_{role}", made_ms=1)
    roles = [role] if role else []
    here.gate.adopt(
        await here.records.change(
            lambda it: with_token(
                with_user(it, f"of_{role}", roles, replaces=False), token, now_ms=1
            )
        )
    )
    here.tokens[f"of_{role}"] = text


async def trains(peer: Peer, proof: Mapping[str, str]) -> str:
    """A vchannel of a collection, which the built-in roles are about."""
    asked = v1.CreateCollectionRequest(name="trains", shards=1)
    answer = await peer.call("/tidemark.v1.Collections/Create", bytes(asked), proof)
    return v1.Collection.parse(answer).vchannels[0]


def test_the_page_has_each_call_and_each_built_in_role() -> None:
    assert rows().keys() == PERMISSIONS.keys()
    assert {*ROLES[1:]} == {*BUILT_IN}
    assert {len(it) for it in rows().values()} == {len(ROLES)}


@pytest.mark.parametrize("role", ROLES)
async def test_each_call_answers_a_role_as_the_page_says(role: str) -> None:
    async with controlled() as here, connected(here.broker) as peer:
        vchannel = await trains(peer, here.proof(ADMIN))
        await add(here, role)
        ack = wire.BroadcastAckRequest(broadcast_id=1, vchannel=vchannel)
        proof = here.proof(f"of_{role}")
        requests = {
            **named(vchannel),
            ACK: bytes(ack),
            "/tidemark.v1.Collections/Find": bytes(v1.FindRequest(name="trains")),
        }
        wrong = []
        for path, cells in rows().items():
            cell = cells[ROLES.index(role)]
            if path in IN_STREAMS or path.endswith(ENDLESS):
                continue
            asked = requests.get(path, b"")
            found = code(await outcome(peer, path, asked, proof))
            if found == NOT_HERE:
                continue  # of another kind of process, which the transport says
            if (found == DENIED) != (cell == "no") or found == UNKNOWN:
                wrong.append((path, cell, found))
        assert wrong == []


@pytest.mark.parametrize("role", ROLES)
async def test_streams_of_milvus_answer_a_role_as_the_page_says(role: str) -> None:
    async with world(role) as (peer, vchannel, proof, _):
        at = ROLES.index(role)
        stream = await producing(peer, proof)
        answer = await produced(stream, _vc=vchannel)
        assert isinstance(answer, Produced) == (rows()[f"{MILVUS}Produce"][at] != "no"), answer
        reader = peer.consume(FIRST_TERM, **proof)
        await reader.receive()
        await reader.send(request(vchannel=vchannel))
        if rows()[f"{MILVUS}Consume"][at] == "no":
            assert (await reader.end()).code == DENIED
        else:
            assert scan_consume_response(await reader.receive()) is not None


@pytest.mark.parametrize("role", ROLES)
async def test_streams_of_ours_answer_a_role_as_the_page_says(role: str) -> None:
    async with world(role) as (peer, vchannel, proof, admin):
        made = v1.CreateGroupRequest(vchannel=vchannel, group="workers")
        await peer.call("/tidemark.v1.Groups/Create", bytes(made), admin)
        (answer,) = await told(await begun(peer, APPEND, proof), batch(b"x", vchannel=vchannel))
        read = v1.ReadRequest(open=v1.ReadOpen(vchannels=[vchannel]), credit_bytes=1 << 20)
        join = v1.JoinGroupRequest(open=v1.GroupOpen(vchannel=vchannel, group="workers"))
        allowed = {
            APPEND: isinstance(answer, Landed),
            READ: await goes_on(await begun(peer, READ, proof), bytes(read)),
            JOIN: await goes_on(await begun(peer, JOIN, proof), bytes(join)),
        }
        at = ROLES.index(role)
        assert allowed == {path: rows()[path][at] != "no" for path in allowed}


@pytest.mark.parametrize("role", ROLES)
async def test_a_broadcast_answers_a_role_as_the_page_says(role: str) -> None:
    async with world(role) as (peer, vchannel, proof, _):
        asked = broadcast(BroadcastHeader(0, (vchannel,)))
        found = code(await outcome(peer, BROADCAST, asked, proof))
        assert (found == DENIED) == (rows()[BROADCAST][ROLES.index(role)] == "no")
        assert found != UNKNOWN


async def begun(peer: Peer, path: str, proof: Mapping[str, str]) -> PeerStream:
    """A stream that the server has accepted: it asks for rights with the first request."""
    name = CREATE_PRODUCER if path == APPEND else CREATE_CONSUMER
    stream = peer.open(path, {name: create_header(CreateHeader(P0, FIRST_TERM)), **proof})
    assert await stream.receive() == b""
    return stream


async def goes_on(stream: PeerStream, asked: bytes) -> bool:
    """Whether the request is answered; a stream without the right to it is denied."""
    await stream.send(asked)
    try:
        await stream.receive()
    except Ended as ended:
        if ended.code == DENIED:
            return False
        raise
    return True
