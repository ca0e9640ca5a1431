"""What a program hears of its waits: late, once for many, more and more rarely, and their end."""

from itertools import pairwise

from broker.client.net.wait_report import REPEAT_S_MAX, Wait, WaitReport


def wait(report: WaitReport, name: str = "", *, since_s: float = 0.0, cause: str = "") -> Wait:
    begun = Wait("a node", name, since_s, cause)
    report.begun(begun)
    return begun


def test_a_short_wait_is_never_reported() -> None:
    report = WaitReport()
    short = wait(report)
    assert report.next_s() == 2.0
    assert report.due(1.9) == []
    assert report.ended(short, 1.9, succeeded=True) == ""
    assert report.next_s() is None
    assert report.due(100.0) == []


def test_a_long_wait_is_repeated_ever_more_rarely_and_its_end_is_reported() -> None:
    report, told = WaitReport(), []
    long = wait(report, cause="connection refused")
    now_s = 0.0
    while (at_s := report.next_s()) is not None and at_s < 300.0:
        assert at_s > now_s
        now_s = at_s
        told += [(now_s, line) for line in report.due(now_s)]
    assert told[0] == (2.0, "waiting 2 s for a node: connection refused")
    times = [at_s for at_s, _ in told]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == REPEAT_S_MAX
    assert report.ended(long, 300.0, succeeded=True) == "no longer waiting for a node, after 300 s"


def test_waits_for_the_same_thing_share_a_line() -> None:
    report = WaitReport()
    waits = [wait(report, f"channel-{it}", since_s=it / 10) for it in range(5)]
    (line,) = report.due(3.0)
    assert line == "waiting 3 s for a node (channel-0, channel-1 and 3 more): no answer yet"
    assert [report.ended(it, 4.0, succeeded=True) for it in waits[1:]] == [""] * 4
    assert report.ended(waits[0], 5.0, succeeded=True) == "no longer waiting for a node, after 5 s"


def test_the_end_of_a_wait_that_failed_is_left_to_its_error() -> None:
    report = WaitReport()
    failed = wait(report)
    assert report.due(2.0)
    assert report.ended(failed, 3.0, succeeded=False) == ""


def test_a_cause_may_change_while_the_wait_goes_on() -> None:
    report = WaitReport()
    changing = wait(report, cause="one")
    assert report.due(2.0) == ["waiting 2 s for a node: one"]
    changing.cause = "two"
    assert report.due(2.5) == []
    at_s = report.next_s()
    assert at_s is not None
    assert report.due(at_s)[0].endswith("a node: two")
