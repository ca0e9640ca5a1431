"""What the pages say of a state of the broker, without a screen."""

from dataclasses import replace
from typing import Any

import pytest

from broker.cli.top.broker_state import SEGMENTS_MAX
from broker.cli.top.choices import Choices
from broker.cli.top.chrome import PAGES
from broker.cli.top.look import Look
from broker.cli.top.pages.actors_page import actors_page
from broker.cli.top.pages.channels_page import channel_section, node_section
from broker.cli.top.pages.collections_page import collection_section
from broker.cli.top.pages.groups_page import NOT_ASKED as GROUPS_NOT_ASKED
from broker.cli.top.pages.groups_page import group_section, member_section
from broker.cli.top.pages.health_page import held_section, trouble_section
from broker.cli.top.pages.readers_page import cursor_section, reader_section
from broker.cli.top.pages.segments_page import (
    NO_SEGMENTS,
    NOT_ASKED,
    segment_section,
)
from broker.cli.top.pages.segments_page import (
    collection_section as segment_sums,
)
from broker.cli.top.pages.work_page import (
    barrier_section,
    broadcast_section,
    commit_section,
    lock_section,
    transaction_section,
)
from broker.cli.top.picture import page_of
from broker.cli.top.rates import Rates
from broker.cli.top.section import Section
from broker.client.cluster import BroadcastInfo, LogHolder, PassedHolder
from broker.model.ids import SegmentId, TimeTick
from broker.model.retention.policy import Retention
from tests.broker.cli.top.broker_states import (
    DAMAGE,
    HEALTH,
    LOG,
    LONG_NAME,
    NOW_MS,
    P0,
    P1,
    TROUBLE,
    actor,
    broker_state,
    busy_states,
    channel,
    collection,
)


def busy() -> Look:
    before, now = busy_states()
    return Look(now, Rates.between(before, now))


def cells(section: Section, *titles: str) -> list[tuple[Any, ...]]:
    at = [next(n for n, it in enumerate(section.columns) if it.title == title) for title in titles]
    return [tuple(row.values[n] for n in at) for row in section.rows]


def test_a_collection_is_the_sum_of_its_shards_and_ids_without_a_name_are_shown_too() -> None:
    section = collection_section(busy())
    found = {name: rest for name, *rest in cells(section, "collection", "in/s", "shards", "schema")}
    assert list(found) == ["flights", "idle", LONG_NAME, "orders", "sales/items", "id 4521"]
    assert found["flights"][0] == pytest.approx((24_700 + 6175 + 2745 + 1544) / 2, abs=1)
    assert found["idle"] == [0.0, 1, None]
    assert found["orders"][1:] == [2, 12]
    assert found["id 4521"][1:] == [None, None]


def test_a_collection_says_what_it_keeps_and_who_holds_back_the_most() -> None:
    few = LogHolder(P0, "cursor", "few", 10, None, None)
    many = LogHolder(P1, "group", "many", 4096, 1 << 30, None)
    channels = (channel(P0, holders=(few,)), channel(P1, holders=(many,)))
    collections = (
        replace(collection("aged", 7), retention=Retention(age_ms_max=7 * 86_400_000)),
        replace(collection("both", 8, 2), retention=Retention(1 << 30, 90_000)),
        collection("plain", 9),
    )
    section = collection_section(Look(broker_state(channels=channels, collections=collections)))
    assert cells(section, "collection", "keeps", "keeps B", "held", "held by") == [
        ("aged", 604_800, None, 10, "cursor few"),
        ("both", 90, 1 << 30, 4096, "group many"),
        ("plain", None, None, 10, "cursor few"),
    ]
    free = Look(broker_state(collections=collections[2:]))
    assert cells(collection_section(free), "held", "held by") == [(None, None)]


def test_rates_are_unknown_before_the_second_look() -> None:
    section = collection_section(Look(busy_states()[0]))
    assert {rate for (rate,) in cells(section, "in/s")} == {None}


def test_a_reader_is_as_late_as_the_tick_it_has_reached() -> None:
    section = reader_section(busy())
    assert cells(section, "reader of", "lag", "behind", "held", "state") == [
        ("everything", None, 60_900, 0, "reading"),
        ("everything", None, 60_960, 0, "reading"),
        ("flights", 95.0, 60_940, 3 << 20, "reading"),
    ]
    collections = collection_section(busy())
    late = {name: rest for name, *rest in cells(collections, "collection", "readers", "lag")}
    assert late["flights"] == [1, 95.0]
    assert late["orders"] == [0, None]


def test_a_paused_reader_and_one_that_waits_say_so() -> None:
    path = f"{LOG}/scanners/scanner-"
    tree = [
        actor(f"{path}1", extra={"next_id": "101", "paused": "1", "waiting": "1"}),
        actor(f"{path}2", extra={"next_id": "101", "paused": "0", "waiting": "1"}),
        actor(f"{path}3", extra={"next_id": "101"}),
        actor(f"{path}4", extra={"next_id": "0", "tick": "0"}),
        actor(f"{path}5"),  # just started: it knows nothing of itself
    ]
    section = reader_section(Look(broker_state(actors=tree)))
    assert cells(section, "lag", "behind", "state") == [
        (0.0, 0, "paused"), (0.0, 0, "waiting"), (0.0, 0, "at end"), (None, None, "opened"),
    ]  # fmt: skip


def test_a_reader_of_some_vchannels_counts_for_each_of_their_collections() -> None:
    _, now = busy_states()
    names = [now.collections[0].vchannels[0], now.collections[1].vchannels[0]]
    tree = [actor(f"{LOG}/scanners/s-1", extra={"next_id": "9", "among": " ".join(names)})]
    section = reader_section(Look(replace(now, actors=tree)))
    assert cells(section, "reader of") == [("flights, orders",)]


def test_a_cursor_says_how_far_it_is_behind_and_when_it_moved() -> None:
    titles = ("cursor", "on", "lag", "behind", "bytes", "moved")
    assert cells(cursor_section(busy()), *titles) == [
        ("nightly-report", "flights", 3600.0, 1_228_000, 245_600_000, 61.0)
    ]
    known = busy().broker.cursors[0]
    unknown = replace(known, closed_tick=TimeTick(0), lags=dict([*known.lags.items()][1:]))
    look = Look(broker_state(cursors=(unknown,)))
    assert cells(cursor_section(look), "on", "lag", "behind") == [("id 100", None, None)]


def test_a_node_sums_up_its_pchannels() -> None:
    (node,) = cells(node_section(busy()), "node", "address", "channels", "on disk")
    assert node == ("node 1", "a:1", 2, (5 << 30) + 2048)
    assert not node_section(Look(broker_state(channels=()))).rows


def test_pchannels_come_in_natural_order_and_trouble_stands_where_the_channel_stands() -> None:
    section = channel_section(busy())
    assert cells(section, "pchannel", "messages", "closed") == [(P0, 61_000, 0.2), (P1, 100, 0.2)]
    ill = Look(broker_state(health=replace(HEALTH, troubles=TROUBLE)))
    assert [(row.values[1], row.odd) for row in channel_section(ill).rows] == [
        ("assigned", False),
        ("refusing", True),
    ]


def test_open_and_staged_transactions_stand_at_their_pchannel() -> None:
    section = transaction_section(busy())
    assert cells(section, "transactions on", "open", "staged", "staged bytes", "oldest staged") == [
        (P0, 3, 2, 3 << 20, 4.0)
    ]


def test_a_slow_commit_stands_out() -> None:
    quick, slow = busy().broker.commits[0], replace(busy().broker.commits[0], age_ms=25_000)
    idle = replace(quick, state="", under_way=None, batch=None)
    section = commit_section(Look(broker_state(commits=(quick, slow, idle))))
    assert [row.odd for row in section.rows] == [False, True, False]
    assert cells(section, "batch", "next", "state", "for") == [
        (6, 7, "committing", 0.012), (6, 7, "committing", 25.0), (None, None, "idle", None),
    ]  # fmt: skip


def test_a_broadcast_in_quarantine_says_why() -> None:
    waiting = BroadcastInfo("", "WAITING", 1, (), 4, 0, 0, "", 0, "")
    ill = Look(broker_state(broadcasts=(*busy().broker.broadcasts, waiting)))
    section = broadcast_section(ill)
    assert cells(section, "broadcast", "state", "acked", "cause") == [
        ("7", "quarantine", 3, "callback: no"), ("-", "WAITING", 0, "-"),
    ]  # fmt: skip
    assert [row.odd for row in section.rows] == [True, False]
    assert cells(lock_section(busy()), "locks", "lock") == [("7", "holds")]


def test_late_peers_of_a_barrier_are_named() -> None:
    section = barrier_section(busy())
    assert [row.values for row in section.rows] == [("cut", "hard", 5.0, 2, "a")]
    assert section.rows[0].odd


def test_a_supervisor_sums_up_what_is_below_it_and_the_tree_can_be_folded() -> None:
    before = broker_state(at_s=8.0, actors=[replace(it, handled=0) for it in broker_state().actors])
    look = Look(broker_state(), Rates.between(before, broker_state()))
    (section,) = actors_page(look, expanded=True).sections
    found = {
        name: rest for name, *rest in cells(section, "actor", "mailbox", "handled/s", "restarts")
    }
    assert list(found)[:3] == ["root", "node", "channels"]
    assert found["root"] == [7, 50.0, 3]
    assert found["scanners"] == [0, 0.0, 2]
    (folded,) = actors_page(look, expanded=False).sections
    # What was restarted is not folded away.
    assert [name for (name,) in cells(folded, "actor")] == [
        "root", "node", "channels", P0, "scanner-1",
    ]  # fmt: skip
    assert [row.odd for row in folded.rows] == [False, False, False, True, True]


def test_parents_come_before_their_children_and_names_are_in_the_order_people_count() -> None:
    tree = [actor(it) for it in ("/root", "/root/p_10", "/root/p_9", "/root/p_9/x")]
    (section,) = actors_page(Look(broker_state(actors=tree)), expanded=True).sections
    assert [name for (name,) in cells(section, "actor")] == ["root", "p_9", "x", "p_10"]


def test_a_worker_that_ends_is_no_trouble_unless_it_stays() -> None:
    tree = [actor("/root"), actor("/root/a", state="abandoned")]
    state = broker_state(actors=tree, at_s=12.0)
    (section,) = actors_page(Look(state), expanded=True).sections
    assert [row.odd for row in section.rows] == [False, False]
    again = Look(state, Rates.between(replace(state, at_s=10.0), state))
    (section,) = actors_page(again, expanded=True).sections
    assert [row.odd for row in section.rows] == [False, True]


def test_trouble_damage_a_pause_and_calls_without_an_answer_are_all_named() -> None:
    health = replace(
        HEALTH, troubles=TROUBLE, damages=DAMAGE, damages_unlisted=2, consumption_paused=True
    )
    section = trouble_section(Look(broker_state(health=health, missing={"cursors": "timed out"})))
    assert cells(section, "trouble with", "what") == [
        (P1, "refusing"), (P0, "damage refused 2x"), ("more", "damage"),
        ("consumption", "paused"), ("cursors", "no answer"),
    ]  # fmt: skip
    assert all(row.odd for row in section.rows)


def test_who_was_passed_comes_before_who_holds_most() -> None:
    holders = (
        LogHolder(P0, "snapshot", "recovery", 10, None, None),
        LogHolder(P1, "cursor", "billing", 2048, 1 << 30, NOW_MS),
    )
    passed = (PassedHolder(P1, "cursor", "slow", "bytes", 4096, 1024, 5, NOW_MS),)
    section = held_section(
        Look(broker_state(health=replace(HEALTH, holders=holders, passed=passed)))
    )
    assert cells(section, "holder", "pchannel", "held", "limit") == [
        ("cursor slow", P1, 4096, "passed by bytes"),
        ("cursor billing", P1, 2048, "until 1.00 GiB or 2027-01-15 08:00:00Z"),
        ("snapshot recovery", P0, 10, "no limit"),
    ]
    assert [row.odd for row in section.rows] == [True, False, False]


def test_segments_are_summed_up_for_each_collection_and_growing_ones_come_first() -> None:
    sums = segment_sums(busy())
    titles = ("collection", "rows", "bytes", "partitions", "growing", "flushed")
    found = {name: rest for name, *rest in cells(sums, *titles)}
    assert found["orders"] == [61_000, 90 << 20, 3, 1, 1]
    assert found["sales/items"] == [12, 4096, 1, 0, 0]
    assert found["idle"] == [0, 0, 1, 0, 0]
    shown = ("segment", "collection", "partition", "vchannel", "state", "age")
    assert cells(segment_section(busy()), *shown) == [
        ("1000003", "orders", "_default", f"{P0}_101v0", "growing", 20.0),
        ("1000005", "sales/items", "7", "reserved", "sealed", 3600.0),
        ("1000002", "orders", "_default", f"{P0}_101v0", "flushed", 7200.0),
        ("1000009", "id 4521", "8", f"{P0}_4521v0", "flushed", 7200.0),
    ]


def test_counts_that_the_shown_segments_do_not_cover_are_unknown() -> None:
    now = busy().broker
    assert now.segments is not None
    first = [replace(now.segments[0], id=SegmentId(it)) for it in range(SEGMENTS_MAX - 1)]
    look = Look(replace(now, segments=[*first, now.segments[2]]))
    found = dict(cells(segment_sums(look), "collection", "rows"))
    # Listed by collection: the last one may go on, and others may follow.
    known = {"orders": (SEGMENTS_MAX - 1) * now.segments[0].rows}
    assert found == known | {"sales/items": None, "flights": None, "idle": None, LONG_NAME: None}
    assert segment_section(look).columns[0].title == "segment, of the first 2,000"


def test_the_page_of_segments_says_why_it_is_empty() -> None:
    state = broker_state()
    assert segment_section(Look(state)).empty == NOT_ASKED
    assert segment_section(Look(replace(state, segments=()))).empty == NO_SEGMENTS
    away = Look(replace(state, missing={"segments": "away"}))
    assert segment_section(away).empty == "away"


def test_no_section_is_blank_and_one_without_an_answer_says_the_error() -> None:
    empty = broker_state(actors=(), channels=())
    for number in range(len(PAGES)):
        for section in page_of(Look(empty), Choices(number)).sections:
            assert section.rows or section.empty.endswith("."), section.title
    names = ("channels", "collections", "cursors", "commits", "broadcasts", "locks", "barriers")
    missing = dict.fromkeys((*names, "segments", "groups"), "away")
    look = Look(replace(empty, missing=missing))
    said = {
        section.title: section.empty
        for number in range(len(PAGES))
        for section in page_of(look, Choices(number)).sections
        if not section.rows
    }
    assert {title for title, words in said.items() if words != "away"} == {"actors", "holds"}


def test_a_group_is_the_sum_of_its_vchannels_and_one_that_fails_or_is_slow_is_odd() -> None:
    section = group_section(busy())
    titles = ("group", "of", "members", "behind", "lag", "out", "again", "dead", "expired")
    found = {name: rest for name, *rest in cells(section, *titles)}
    assert found == {
        "forgotten": ["orders", 0, 307_000, 259_200.0, 0, 0, 0, 0],
        "new": ["orders", 0, None, None, 0, 0, 0, 0],
        "workers": ["flights", 3, 614_000, 95.2, 7, 7, 1, 12],
        "writers": ["orders", 0, 0, 0.0, 0, 0, 0, 0],
    }
    assert [row.odd for row in section.rows] == [False, False, True, True]
    idle = dict(cells(section, "group", "idle"))
    assert idle == {"forgotten": 259_200.0, "new": None, "workers": None, "writers": 259_200.0}


def test_a_member_is_shown_by_its_worst_vchannel() -> None:
    assert cells(member_section(busy()), "member", "of group", "state", "out", "vchannels") == [
        ("ann", "workers of flights", "waiting for messages", 6, 3),
        ("bob", "workers of flights", "slow: its leases run out", 1, 1),
        ("eve", "workers of flights", "paused: takes nothing", 0, 1),
    ]


def test_groups_are_asked_for_when_their_page_is_shown() -> None:
    assert group_section(Look(broker_state())).empty == GROUPS_NOT_ASKED
