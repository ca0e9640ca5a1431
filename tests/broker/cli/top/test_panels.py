"""What the screen says of a look, without a screen."""

from dataclasses import replace

import pytest

from broker.cli.top import panels
from broker.cli.top.broker_state import Rates
from broker.client.cluster import BroadcastInfo, LockInfo
from broker.client.txn import AppCommits
from broker.model.barrier import BarrierKind, BarrierPeer, BarrierView
from broker.model.ids import TimeTick
from tests.broker.cli.top.broker_states import (
    DAMAGE,
    HEALTH,
    LOG,
    NOW_MS,
    P0,
    P1,
    TROUBLE,
    actor,
    broker_state,
    channel,
)

NO_RATES = Rates({}, {})


def test_a_supervisor_sums_up_what_is_below_it() -> None:
    before = broker_state(at_s=8.0, actors=[replace(it, handled=0) for it in broker_state().actors])
    found = {
        it.path: it
        for it in panels.actor_rows(broker_state(), Rates.between(before, broker_state()))
    }
    root = found["/root"]
    assert (root.mailbox, root.restarts, root.rate, root.depth) == ("7/10", 3, 50.0, 0)
    assert (found[f"{LOG}/scanners"].restarts, found[f"{LOG}/scanners"].rate) == (2, 0.0)
    appender = found[f"{LOG}/appender"]
    assert (appender.name, appender.depth, appender.is_leaf) == ("appender", 5, True)


def test_parents_come_before_their_children_and_names_are_in_the_order_people_count() -> None:
    names = [f"/root/{name}" for name in ("p_10", "p_9", "p_9/x")]
    tree = [actor(it) for it in ("/root", *names)]
    assert [it.path for it in panels.actor_rows(broker_state(actors=tree), NO_RATES)] == [
        "/root", "/root/p_9", "/root/p_9/x", "/root/p_10",
    ]  # fmt: skip


def test_a_rate_is_of_one_incarnation() -> None:
    before = broker_state(at_s=8.0)
    appender = replace(broker_state().actors[5], term=2, handled=10)
    after = broker_state(actors=[appender, actor("/root/new", handled=1000)])
    assert Rates.between(before, after).handled == {appender.path: 5.0}
    assert Rates.between(None, after) == Rates({}, {}) == Rates.between(after, after)


def test_a_channel_lags_as_far_as_its_slowest_consumer() -> None:
    panel = panels.channel_panel(broker_state(), Rates({}, {P0: 12.34}), wide=False)
    assert list(panel.rows) == [P0, P1]
    assert panel.rows[P0] == (P0, "2", "0.2 s", "60", "3", "2.0 KiB", "12")
    assert panel.rows[P1][3:] == ("-", "3", "2.0 KiB", "-")
    wide = panels.channel_panel(broker_state(), NO_RATES, wide=True)
    assert wide.rows[P0][7:] == ("2", "1..100", "1 a:1", "0", "-")
    assert {len(row) for row in wide.rows.values()} == {len(wide.columns)}


def test_trouble_stands_where_the_channel_stands_and_in_a_place_of_its_own() -> None:
    ill = broker_state(health=replace(HEALTH, troubles=TROUBLE, damages=DAMAGE))
    panel = panels.channel_panel(ill, NO_RATES, wide=False)
    assert (panel.rows[P1][2], set(panel.odd)) == ("refusing", {P1})
    trouble = panels.trouble_panel(ill)
    assert [row[:2] for row in trouble.rows.values()] == [
        (P1, "refusing"),
        (P0, "damage refused x2"),
    ]
    assert trouble.odd == set(trouble.rows)


def test_late_peers_of_a_barrier_are_named() -> None:
    peers = (BarrierPeer("a", TimeTick(1), True), BarrierPeer("b", TimeTick(2), False))
    tick = TimeTick((NOW_MS - 5000) << 18)
    barrier = BarrierView("q", BarrierKind.HARD, tick, peers, ("a",), ())
    panel = panels.barrier_panel(broker_state(barriers=(barrier,)))
    assert list(panel.rows.values()) == [("q", "hard", "5.0 s", "2", "a")]
    assert len(panel.odd) == 1


def test_a_broadcast_in_quarantine_says_why() -> None:
    poison = BroadcastInfo("7", "REPLICATED", 1, (), 4, 4, 3, "callback: no", 5, "")
    waiting = BroadcastInfo("", "WAITING", 1, (), 4, 0, 0, "", 0, "")
    ill = broker_state(broadcasts=(poison, waiting), locks=(LockInfo("7", (), True),))
    panel = panels.broadcast_panel(ill)
    assert list(panel.rows.values()) == [
        ("7", "quarantine", "3/4", "", "callback: no"),
        ("-", "WAITING", "0/4", "", "-"),
    ]
    assert panel.odd == {"7"}
    assert "1 in quarantine" in panels.summary(ill, NO_RATES)
    assert list(panels.lock_panel(ill).rows.values()) == [("7", "holds", "")]


def test_what_is_staged_on_a_channel_is_told_with_its_size_and_its_age() -> None:
    staged = {
        "staged_txns": "2",
        "staged_bytes": str(3 << 20),
        "staged_since": str((NOW_MS - 4000) << 18),
    }
    path = f"/node-2/node/channels/{P1}/log/appender"
    tree = [actor(path, extra=staged), actor(f"{LOG}/appender", extra={"staged_txns": "0"})]
    wide = panels.channel_panel(broker_state(actors=tree), NO_RATES, wide=True)
    assert wide.columns[-1] == "staged"
    assert [wide.rows[name][-1] for name in (P0, P1)] == ["-", "2, 3.0 MiB, 4.0 s"]


def test_commits_under_way_are_counted_and_a_slow_one_stands_out() -> None:
    quick = AppCommits("etl", 6, NOW_MS, 7, "committing", 1200, 12)
    slow = AppCommits("query", None, 0, 0, "preparing", 3, 25_000)
    idle = AppCommits("idle", 3, NOW_MS, None, "", 0, 0)
    busy = broker_state(commits=(quick, idle, slow))
    panel = panels.commit_panel(busy)
    assert list(panel.rows.values()) == [
        ("etl", "7", "committing", "1,200", "0.0 s"),
        ("query", "0", "preparing", "3", "25.0 s"),
    ]
    assert panel.odd == {"query"}
    assert "2 commits in progress" in panels.summary(busy, NO_RATES)


def test_the_first_line_says_how_it_is() -> None:
    line = panels.summary(broker_state(), Rates({}, {P0: 1000.0, P1: 500.5}))
    assert line == "2/2 channels · 1,500 msg/s · closed 0.2 s ago · 3 restarts · 9 actors"
    never = broker_state(channels=[channel(P0, closed_tick=0)])
    assert "closed never · " in panels.summary(never, NO_RATES)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (5 << 30, "5.0 GiB"), (7 << 50, "7,168.0 TiB")],
)
def test_sizes_have_about_three_digits(count: int, shown: str) -> None:
    assert panels.size(count) == shown
