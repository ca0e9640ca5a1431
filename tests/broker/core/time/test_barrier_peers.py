"""Leases, against a list of when each member was heard last."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.barrier_peers import BarrierPeers, PeerLease


def test_a_peer_is_late_after_half_its_lease_and_overdue_after_all_of_it() -> None:
    peers = BarrierPeers()
    peers.join("a", PeerLease(1, 10.0, 100.0))
    peers.join("b", PeerLease(2, 100.0, 100.0))
    for now_s, silent, overdue in [
        (105.0, (), ()),
        (105.1, ("a",), ()),
        (110.0, ("a",), ()),
        (110.1, ("a",), ("a",)),
    ]:
        assert (peers.silent(now_s), peers.overdue(now_s)) == (silent, overdue)
    peers.hear("a", 110.1)
    assert peers.silent(110.2) == ()
    assert peers.silent(151.0) == ("a", "b")


def test_who_joins_again_has_only_the_later_lease() -> None:
    peers = BarrierPeers()
    peers.join("a", PeerLease(1, 10.0, 0.0))
    peers.join("a", PeerLease(2, 5.0, 1.0))
    assert peers.lease_of("a") == PeerLease(2, 5.0, 1.0)
    assert (len(peers), peers.longest_lease_s) == (1, 5.0)
    assert peers.overdue(6.5) == ("a",)


def test_who_left_is_neither_late_nor_a_member() -> None:
    peers = BarrierPeers()
    peers.join("a", PeerLease(1, 1.0, 0.0))
    peers.leave("a")
    peers.leave("a")
    assert peers.silent(9.0) == peers.overdue(9.0) == peers.names() == ()
    assert peers.longest_lease_s == 0.0
    assert peers.lease_of("a") is None
    assert "a" not in peers


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "hear", "leave"]), st.sampled_from("abc"), st.integers(0, 5)
    ),
    max_size=40,
)


@given(STEPS)
def test_leases_are_as_the_list_of_sayings_has_it(steps: list[tuple[str, str, int]]) -> None:
    peers, said, now_s = BarrierPeers(), dict[str, float](), 0.0
    for what, name, pause_s in steps:
        now_s += pause_s
        if what == "join":
            peers.join(name, PeerLease(0, 4.0, now_s))
            said[name] = now_s
        elif what == "leave":
            peers.leave(name)
            said.pop(name, None)
        elif name in peers:
            peers.hear(name, now_s)
            said[name] = now_s
        assert set(peers.silent(now_s)) == {it for it, at in said.items() if now_s - at > 2.0}
        assert set(peers.overdue(now_s)) == {it for it, at in said.items() if now_s - at > 4.0}
        assert set(peers.names()) == set(said)
