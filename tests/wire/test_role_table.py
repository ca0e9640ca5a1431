"""The page of permissions is what a broker does: each call of each service, for each role."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.core.security.access_book import BUILT_IN
from broker.core.security.book_changes import with_token, with_user
from broker.edge.access.new_token import new_token
from broker.edge.rpc.access.permissions import PERMISSIONS
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from schemas.wire import Produced, scan_consume_response
from tests.wire.controlled import ADMIN, Controlled, controlled
from tests.wire.peer import Peer, connected
from tests.wire.small_broker import FIRST_TERM
from tests.wire.test_access import ACK, DENIED, NOT_HERE, UNKNOWN, code, named, outcome, producing
from tests.wire.test_access import said as produced
from tests.wire.test_consume import request

PAGE = Path(__file__).parents[2] / "broker" / "edge" / "PERMISSIONS.md"
ROW = re.compile(r"^\| `([\w./]+)` \| (.*) \|$", re.MULTILINE)
ROLES = ("", "reader", "writer", "observer", "admin")
MILVUS = "/milvus.proto.streaming.StreamingNodeHandlerService/"
IN_STREAMS = {
    f"{MILVUS}Produce",
    f"{MILVUS}Consume",
    "/milvus.proto.streaming.StreamingCoordBroadcastService/Broadcast",
    "/tidemark.v1.Log/Append",
    "/tidemark.v1.Log/Read",
    "/tidemark.v1.Groups/Join",
}
"""Asked for inside; the last four with the client in `tests/broker/client/access`."""
ENDLESS = ("/AssignmentDiscover", "/Watch", "/WatchBarrier")
"""Streams that everybody with a proof, or who may use barriers, may open; they do not end."""


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
    async with controlled() as here, connected(here.broker) as peer:
        vchannel = await trains(peer, here.proof(ADMIN))
        await add(here, role)
        proof, at = here.proof(f"of_{role}"), ROLES.index(role)
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
