"""What a flood of refusals becomes: few lines, and no refusal is forgotten in the sums."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.core.audit.audit_record import NOBODY, AuditKind, AuditRecord, Decision
from broker.core.audit.repeated_refusals import ANY, RepeatedRefusals


def refused(peer: str = "10.0.0.1:500", **changed: Any) -> AuditRecord:
    record = AuditRecord(
        0, AuditKind.ADMIN, "ddl", "/s/Drop", NOBODY, peer, Decision.REFUSED, "INVALID_ARGUMENT"
    )
    return replace(record, **changed)


def test_the_first_refusal_is_a_line_at_once_and_alone_it_stays_the_only_one() -> None:
    repeats = RepeatedRefusals(window_s=10)
    assert repeats.take(refused(), 0) == refused()
    assert repeats.is_open()
    assert repeats.ended(9) == []
    assert repeats.ended(10) == []
    assert not repeats.is_open()
    assert repeats.take(refused(), 11) == refused(), "it is a first one again"


def test_the_same_again_is_one_line_with_the_count_at_the_end_of_each_window() -> None:
    repeats = RepeatedRefusals(window_s=10)
    repeats.take(refused(), 0)
    for port in range(1, 101):
        assert repeats.take(refused(f"10.0.0.1:{port}", at_ms=port), 5) is None
    assert repeats.ended(10) == [refused("10.0.0.1", at_ms=100, repeated=100)]
    assert repeats.take(refused(), 15) is None, "the next window counts from its first one"
    assert repeats.ended(20) == [refused("10.0.0.1", repeated=1)]
    assert repeats.ended(30) == []
    assert not repeats.is_open()


def test_refusals_that_differ_are_told_apart() -> None:
    repeats = RepeatedRefusals(window_s=10)
    different = [
        refused(),
        refused("10.0.0.2:500"),
        refused(who="app"),
        refused(user="ann"),
        refused(method="/s/Create"),
        refused(outcome="RATE_LIMIT_REJECTED"),
        refused(named={"collection": "a"}),
        refused(named={"vchannels": ["a", "b"]}),
        refused(named={"vchannels": ["a", "c"]}),
        refused(named={"node": 3}),
    ]
    assert [repeats.take(it, 0) for it in different] == different


def test_a_peer_whose_refusals_all_differ_gets_few_lines_and_the_rest_as_a_sum() -> None:
    repeats = RepeatedRefusals(window_s=10, per_peer_max=3)
    lines = [repeats.take(refused(named={"name": str(it)}, who="app"), 0) for it in range(100)]
    assert len([it for it in lines[:3] if it is not None]) == 3
    whole = refused("10.0.0.1", action=ANY, method=ANY, outcome=ANY, who="app")
    assert lines[3] == whole
    assert lines[4:] == [None] * 96
    assert repeats.ended(10) == [replace(whole, repeated=96)]
    assert repeats.take(refused(named={"name": "101"}), 10) is not None, "three kinds ended"


def test_many_peers_share_one_sum_once_too_much_is_counted() -> None:
    repeats = RepeatedRefusals(window_s=10, kinds_max=2)
    lines = [repeats.take(refused(f"10.0.0.{it}:1", who="a", user="b"), 0) for it in range(50)]
    whole = refused(ANY, action=ANY, method=ANY, outcome=ANY, who=ANY)
    assert lines[2] == whole
    assert lines[3:] == [None] * 47
    assert repeats.ended(10) == [replace(whole, repeated=47)]


def test_the_end_of_the_process_tells_all_sums() -> None:
    repeats = RepeatedRefusals(window_s=10)
    for _ in range(3):
        repeats.take(refused(), 0)
    repeats.take(refused("10.0.0.2:1"), 0)
    assert repeats.all() == [refused("10.0.0.1", repeated=2)]
    assert not repeats.is_open()
    assert repeats.take(refused(), 1) == refused()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, 12))),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_lines_and_sums_add_up_to_all_refusals(
    seen: list[tuple[int, int, int]], per_peer: int, kinds: int
) -> None:
    repeats = RepeatedRefusals(window_s=10, per_peer_max=per_peer, kinds_max=kinds)
    told, now_s = Counter[str](), 0
    lines: list[AuditRecord] = []
    for host, name, step in seen:
        now_s += step
        lines += repeats.ended(now_s)
        line = repeats.take(refused(f"h{host}:1", named={"name": str(name)}), now_s)
        if line is not None:
            told["at once"] += 1
    lines += repeats.all()
    assert told["at once"] + sum(it.repeated for it in lines) == len(seen)
    assert all(it.repeated for it in lines), "a sum is told only if there is one"
