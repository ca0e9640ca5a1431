"""How slowly a peer is read that causes work, in the time of a clock that nobody waits for."""

import asyncio
from typing import cast

from actors.testing import run_seeded
from broker.transport.frame_costs import FRAMES_A_TURN, UNITS_A_SECOND, UNITS_AT_ONCE
from broker.transport.peer_pace import PeerPace


class Wire:
    """A transport that tells whether it is read."""

    def __init__(self) -> None:
        self._reads = True
        self.closing = False

    def is_read(self) -> bool:
        return self._reads

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True


class Peer:
    """A connection whose bytes come through a pace, as those of the listener do."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.received: list[bytes] = []
        self.pace = PeerPace(cast(asyncio.Transport, self.wire), self.receive)

    def receive(self, data: bytes) -> None:
        if not self.pace.keeps(data):
            self.received.append(data)


def test_who_owes_nothing_is_never_paused() -> None:
    async def story() -> None:
        peer = Peer()
        assert peer.pace.pay(UNITS_AT_ONCE)
        peer.receive(b"all")
        assert (peer.received, peer.wire.is_read()) == ([b"all"], True)

    run_seeded(1, story)


def test_a_debt_is_waited_for_and_what_came_meanwhile_is_received_in_order() -> None:
    async def story() -> None:
        peer, owed_s = Peer(), 3.0
        assert not peer.pace.pay(UNITS_AT_ONCE + int(owed_s * UNITS_A_SECOND))
        peer.pace.pause(b"rest, ")
        peer.receive(b"read when the pause began")
        assert (peer.received, peer.wire.is_read()) == ([], False)
        await asyncio.sleep(owed_s - 0.1)
        assert not peer.wire.is_read()
        await asyncio.sleep(0.2)
        assert peer.wire.is_read()
        assert peer.received == [b"rest, read when the pause began"]

    run_seeded(1, story)


def test_others_have_a_turn_after_so_many_frames_though_all_is_paid_for() -> None:
    async def story() -> None:
        peer = Peer()
        assert peer.pace.pay(0, FRAMES_A_TURN - 1)
        assert not peer.pace.pay(0, 1)
        peer.pace.pause(b"the rest")
        assert not peer.wire.is_read()
        await asyncio.sleep(0.001)
        assert peer.wire.is_read()
        assert peer.received == [b"the rest"]
        assert peer.pace.pay(0, FRAMES_A_TURN - 1), "a new turn began"

    run_seeded(1, story)


def test_a_connection_that_is_lost_or_closing_receives_nothing_more() -> None:
    async def story() -> None:
        lost, closing, closed = Peer(), Peer(), Peer()
        for peer in (lost, closing):
            peer.pace.pay(2 * UNITS_AT_ONCE)
            peer.pace.pause(b"late")
        lost.pace.stop()
        closing.wire.closing = closed.wire.closing = True
        closed.pace.pause(b"late")
        await asyncio.sleep(60.0)
        assert lost.received == closing.received == closed.received == []
        assert closed.wire.is_read()

    run_seeded(1, story)
