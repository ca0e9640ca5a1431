"""How many connections are open, whose they are, and what one is told that is turned away."""

import asyncio
from typing import Any, cast

import anyio
from grpclib.protocol import Peer
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated

from broker.transport.listener import Listener, ListenerLimits
from broker.transport.open_connections import OF_ALL, OF_ONE, OpenConnections
from tests.broker.transport.echo import HOST, Echo, echo

GUARD_S = 60.0


class Wire:
    """A transport of a peer at an address."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written = b""
        self.ended = ""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.host, 7) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = "half-closed"

    def abort(self) -> None:
        self.ended = "reset"


def counted(connections_max: int = 100) -> tuple[OpenConnections[Any], list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []
    found = OpenConnections[Any](connections_max, lambda address, why: told.append((address, why)))

    def named(peer: Peer) -> str:
        address = peer.addr()
        assert address is not None
        return str(address[0])

    found.limit_each(named, lambda name, held: f"{name} has {held}" if held >= 2 else "")
    return found, told


def admit(found: OpenConnections[Any], host: str) -> tuple[Any, Wire, bool]:
    connection, wire = cast(Any, object()), Wire(host)
    return connection, wire, found.admit(connection, cast(asyncio.Transport, wire))


async def test_each_peer_has_so_many_and_a_lost_one_makes_room() -> None:
    found, told = counted()
    first, _, _ = admit(found, "ann")
    assert admit(found, "ann")[2]
    turned_away, wire, admitted = admit(found, "ann")
    assert not admitted
    assert (wire.ended, told) == ("half-closed", [("ann:7", OF_ONE)])
    assert admit(found, "bob")[2], "others have limits of their own"
    found.forget(turned_away)
    assert not admit(found, "ann")[2], "who was not let in makes no room"
    found.forget(first)
    assert admit(found, "ann")[2]
    assert (len(found), found.refused) == (3, 2)


async def test_who_is_turned_away_takes_a_place_until_it_is_gone() -> None:
    found, _ = counted(connections_max=3)
    admit(found, "ann")
    admit(found, "ann")
    turned_away, wire, _ = admit(found, "ann")
    assert not admit(found, "bob")[2]
    found.forget(turned_away)
    assert admit(found, "bob")[2]
    _, wire, _ = admit(found, "cid")
    assert wire.ended == "reset", "nobody is told anything without a free place"
    turned_away, wire, _ = admit(found, "ann")
    with anyio.move_on_after(0):
        await found.wait_until_gone()
    assert wire.ended == "reset"


async def test_without_any_place_a_connection_is_reset_whoever_it_is() -> None:
    found, told = counted(connections_max=1)
    assert admit(found, "ann")[2]
    _, wire, admitted = admit(found, "bob")
    assert not admitted
    assert (wire.ended, wire.written, told) == ("reset", b"", [("bob:7", OF_ALL)])


async def test_nobody_is_counted_or_told_once_the_server_stops() -> None:
    found, told = counted()
    found.accepting = False
    _, wire, admitted = admit(found, "ann")
    assert (admitted, wire.ended, told, found.refused) == (False, "reset", [], 1)


async def test_all_are_gone_when_the_last_one_is() -> None:
    found, _ = counted()
    opened = [admit(found, host)[0] for host in ("ann", "bob")]
    assert set(found.all()) == set(opened)
    found.forget(opened[0])
    with anyio.move_on_after(0) as waited:
        await found.wait_until_gone()
    assert waited.cancelled_caught
    found.forget(opened[1])
    await found.wait_until_gone()


async def test_a_peer_over_its_limit_gets_a_goaway_that_says_why() -> None:
    listener = Listener((Echo(echo, 5.0),), ListenerLimits())
    listener.open_connections.limit_each(lambda _: "ann", lambda name, _: f"not {name}" * 200)
    await listener.listen(HOST, 0)
    read, write = await asyncio.open_connection(HOST, listener.port)
    with anyio.fail_after(GUARD_S):
        came = await read.read()
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    (ended,) = [it for it in peer.receive_data(came) if isinstance(it, ConnectionTerminated)]
    assert ended.error_code is ErrorCodes.ENHANCE_YOUR_CALM
    assert ended.last_stream_id == 0
    assert ended.additional_data == (b"not ann" * 200)[:512]
    assert listener.connections == 0
    write.close()
    with anyio.fail_after(GUARD_S):
        await listener.hang_up(deadline_s=GUARD_S)
