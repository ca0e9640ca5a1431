"""One leg of the tick producer: what passes, what waits, and the tick promise over restarts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.core.master import tick_leg
from broker.core.master.tick_leg import TickLeg, checked
from broker.core.time import tso
from broker.core.time.barrier import NO_TICK, ReportVerdict
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickReport, TickSettings

NOW_MS = 1_700_000_000_000
CHANNELS = ("by-dev-rootcoord-dml_0_1v0", "by-dev-rootcoord-dml_1_1v1")
PCHANNELS = frozenset({PChannelName(f"by-dev-rootcoord-dml_{number}") for number in range(2)})
SOFT, LIST, MINIMUM = TickPolicy.SOFT, TickPolicy.LIST, TickPolicy.MINIMUM


def leg(
    policy: TickPolicy, peers: Sequence[int] = (1, 2), floor: int = 0, interval_ms: int = 0
) -> TickLeg:
    return TickLeg(TickSettings(tuple(peers), CHANNELS, policy, interval_ms), TimeTick(floor))


def drained(found: TickLeg) -> list[int]:
    """What a sender that is fast enough sends."""
    ticks: list[int] = []
    while (tick := found.next()) is not None:
        ticks.append(tick)
        found.sent_everywhere(tick)
    return ticks


def told(found: TickLeg, text: str) -> list[int]:
    ticks: list[int] = []
    for each in text.split():
        peer, _, tick = each.partition(":")
        found.report(int(peer), TimeTick(int(tick)), NOW_MS)
        ticks += drained(found)
    return ticks


@pytest.mark.parametrize("policy", TickPolicy)
def test_nothing_passes_before_everyone_has_reported_also_after_a_restart(
    policy: TickPolicy,
) -> None:
    found = leg(policy, (1, 2, 3))
    assert told(found, "1:10 2:10") == []
    assert found.waits_for() == (3,)
    assert told(found, "3:10") == [10]
    restarted = leg(policy, (1, 2, 3), floor=10)
    assert told(restarted, "1:20 2:20 1:30 2:30") == []
    assert told(restarted, "3:20") == [20]


@pytest.mark.parametrize("policy", TickPolicy)
def test_a_late_report_after_a_restart_passes_nothing_that_was_sent_before(
    policy: TickPolicy,
) -> None:
    restarted = leg(policy, floor=100)
    assert told(restarted, "1:50 2:50 1:100 2:100") == []
    assert restarted.passed == 100
    assert told(restarted, "1:101 2:101") == [101]


def test_soft_ticks_keep_their_distance_over_a_restart() -> None:
    interval = tso.compose(500, 0)
    restarted = leg(SOFT, floor=interval, interval_ms=500)
    almost, enough = 2 * interval - 1, 2 * interval
    assert told(restarted, f"1:{almost} 2:{almost}") == []
    assert told(restarted, f"1:{enough} 2:{enough}") == [enough]


def test_a_soft_tick_that_is_being_sent_gives_way_to_a_newer_one() -> None:
    found = leg(SOFT)
    for text in ("1:10 2:10", "1:20 2:20"):
        for each in text.split():
            peer, _, tick = each.partition(":")
            found.report(int(peer), TimeTick(int(tick)), NOW_MS)
        assert found.next() == int(text[-2:])
    assert found.waiting == 1
    found.sent_everywhere(TimeTick(10))
    assert found.next() == 20
    found.sent_everywhere(TimeTick(20))
    assert (found.next(), found.sent, found.passed) == (None, 20, 20)


def test_hard_ticks_are_sent_one_by_one_in_order() -> None:
    for policy in (LIST, MINIMUM):
        found = leg(policy)
        for peer in (1, 2):
            for tick in (10, 20, 30):
                found.report(peer, TimeTick(tick), NOW_MS)
        assert (found.next(), found.next(), found.waiting) == (10, 10, 3)
        found.sent_everywhere(TimeTick(10))
        assert drained(found) == [20, 30]


def test_ticks_that_some_peer_left_out_are_counted() -> None:
    found = leg(LIST)
    assert told(found, "1:10 1:20 2:20") == [20]
    assert (found.skipped, leg(SOFT).skipped) == (1, 0)
    assert found.reports() == (TickReport(1, TimeTick(20)), TickReport(2, TimeTick(20)))


def test_late_reports_are_told_apart() -> None:
    found = leg(SOFT)
    assert found.report(1, TimeTick(10), NOW_MS) is ReportVerdict.TAKEN
    assert found.report(1, TimeTick(10), NOW_MS) is ReportVerdict.LATE


def test_one_that_is_no_peer_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused, match="9 is not one of those that report ticks: 1, 2") as caught:
        leg(SOFT).report(9, TimeTick(10), NOW_MS)
    assert caught.value.refusal.code is StreamingCode.CHANNEL_NOT_EXIST


def test_a_tick_of_zero_or_of_the_future_is_refused_and_changes_nothing() -> None:
    found, limit_ms = leg(LIST), NOW_MS + tick_leg.AHEAD_MS_MAX
    for tick in (0, -1, tso.compose(limit_ms, 1)):
        with pytest.raises(Refused, match=f"tick {tick} is not between") as caught:
            found.report(1, TimeTick(tick), NOW_MS)
        assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    assert found.reports()[0].tick == NO_TICK
    found.report(1, tso.compose(limit_ms, 0), NOW_MS)
    # A clock that steps back does not make the ticks that follow ones of the future.
    assert found.report(2, tso.compose(limit_ms, 1), NOW_MS - 3_600_000) is ReportVerdict.TAKEN


def test_so_many_hard_ticks_may_wait_to_be_sent_and_then_reports_are_refused() -> None:
    found = leg(MINIMUM, (1,))
    for tick in range(1, tick_leg.WAITING_MAX + 1):
        found.report(1, TimeTick(tick), NOW_MS)
    with pytest.raises(Refused, match="1024 ticks wait to be sent") as caught:
        found.report(1, TimeTick(5_000), NOW_MS)
    assert caught.value.refusal.code is StreamingCode.INNER
    found.sent_everywhere(TimeTick(1))
    assert found.report(1, TimeTick(5_000), NOW_MS) is ReportVerdict.TAKEN


def test_a_new_peer_holds_ticks_up_and_one_that_stays_need_not_report_again() -> None:
    found = leg(SOFT)
    assert told(found, "1:10 2:10") == [10]
    wider = found.changed_to(TickSettings((2, 3), CHANNELS[:1], SOFT))
    assert told(wider, "2:30") == []
    assert told(wider, "3:20") == [20]
    assert wider.settings.channels == CHANNELS[:1]


def test_peers_that_are_all_replaced_pass_nothing_until_the_new_ones_report() -> None:
    for policy in TickPolicy:
        found = leg(policy)
        assert told(found, "1:10 2:20") == ([10] if policy is not LIST else [])
        replaced = found.changed_to(TickSettings((3, 4), CHANNELS, policy))
        assert drained(replaced) == []
        assert told(replaced, "3:30") == []
        assert told(replaced, "4:30") == [30]


def test_another_rule_begins_anew_above_what_has_passed() -> None:
    found = leg(LIST)
    assert told(found, "1:10 2:10") == [10]
    other = found.changed_to(TickSettings((1, 2), CHANNELS, MINIMUM))
    assert other is not found
    assert told(other, "1:20") == []
    assert told(other, "2:5 2:30") == [20]


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (TickSettings((), CHANNELS, SOFT), "0 peers report ticks; there must be 1 to 64"),
        (TickSettings(tuple(range(1, 66)), CHANNELS, SOFT), "65 peers"),
        (TickSettings((1,), (), SOFT), "0 channels get the ticks; there must be 1 to 1024"),
        (TickSettings((0,), CHANNELS, SOFT), "peer ID 0 must be 1 to"),
        (TickSettings((1 << 63,), CHANNELS, SOFT), "peer ID 9223372036854775808"),
        (TickSettings((1,), CHANNELS, LIST), "cannot pass by the rule LIST; use SOFT"),
        (TickSettings((1,), CHANNELS, SOFT, -1), "an interval of -1 ms; it must be 0 to"),
        (TickSettings((1,), CHANNELS, SOFT, 3_600_001), "an interval of 3600001 ms"),
    ],
)
def test_bad_settings_are_refused_by_value(settings: TickSettings, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as caught:
        checked(TickOrigin.PROXIES, settings, PCHANNELS)
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "channel", ["", "flights", "by-dev-rootcoord-dml_7_1v0", "../dml_0", "x" * 1_000]
)
def test_a_channel_of_another_cluster_is_refused(channel: str) -> None:
    with pytest.raises(Refused, match="is no channel of this cluster") as caught:
        checked(TickOrigin.PROXIES, TickSettings((1,), (channel,), SOFT), PCHANNELS)
    assert caught.value.refusal.code is StreamingCode.CHANNEL_NOT_EXIST


def test_settings_get_their_defaults_and_lose_their_repeats() -> None:
    twice = TickSettings((2, 1, 2), (*CHANNELS, *CHANNELS), SOFT)
    found = checked(TickOrigin.PROXIES, twice, PCHANNELS)
    assert found == TickSettings((2, 1), CHANNELS, SOFT, 500)
    hard = TickSettings((1,), CHANNELS, LIST, 700)
    assert checked(TickOrigin.WRITE_NODES, hard, PCHANNELS).interval_ms == 0


# ---- the promise -------------------------------------------------------------------------------


@dataclass
class Writer:
    """A proxy: takes timestamps, writes with them, and reports what it will not go below."""

    pending: list[int] = field(default_factory=list)
    reported: list[int] = field(default_factory=list)
    """Reports on their way; they may arrive late, again, or never."""


class TickPromise(RuleBasedStateMachine):
    """After TimeTick(T) on a channel no message with a timestamp up to T follows, whatever dies."""

    def __init__(self) -> None:
        super().__init__()
        self.writers = {1: Writer(), 2: Writer(), 3: Writer()}
        self.now = 0
        self.logs: list[list[tuple[str, int]]] = [[], []]
        self.policy = MINIMUM
        self.floor = 0
        self.leg = self.opened()
        self.sending: tuple[int, list[int]] | None = None

    def opened(self) -> TickLeg:
        return leg(self.policy, tuple(self.writers), floor=self.floor)

    @rule(peer=st.sampled_from([1, 2, 3]))
    def a_writer_takes_a_timestamp(self, peer: int) -> None:
        self.now += 1
        self.writers[peer].pending.append(self.now)

    @rule(peer=st.sampled_from([1, 2, 3]), data=st.data())
    def a_writer_writes(self, peer: int, data: st.DataObject) -> None:
        pending = self.writers[peer].pending
        if pending:
            tick = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
            self.logs[data.draw(st.integers(0, 1))].append(("data", tick))

    @rule(peer=st.sampled_from([1, 2, 3]))
    def a_writer_sends_a_report(self, peer: int) -> None:
        writer = self.writers[peer]
        self.now += 1
        writer.reported.append(min(writer.pending, default=self.now + 1) - 1)

    @rule(peer=st.sampled_from([1, 2, 3]), data=st.data())
    def a_report_arrives_perhaps_late_or_again(self, peer: int, data: st.DataObject) -> None:
        reported = [it for it in self.writers[peer].reported if it > 0]
        if reported:
            tick = data.draw(st.sampled_from(reported))
            self.leg.report(peer, TimeTick(tick), NOW_MS)

    @rule()
    def the_sender_takes_a_tick(self) -> None:
        tick = self.leg.next()
        if tick is not None and self.sending is None:
            self.floor = tick  # durable before any channel has it
            self.sending = (tick, [0, 1])

    @precondition(lambda self: self.sending)
    @rule()
    def a_channel_gets_it(self) -> None:
        assert self.sending is not None
        tick, channels = self.sending
        self.logs[channels.pop()].append(("tick", tick))
        if not channels:
            self.leg.sent_everywhere(TimeTick(tick))
            self.sending = None

    @rule(policy=st.sampled_from([SOFT, LIST, MINIMUM]))
    def the_master_dies(self, policy: TickPolicy) -> None:
        self.policy, self.sending = policy, None
        self.leg = self.opened()

    @invariant()
    def the_promise_is_kept(self) -> None:
        for log in self.logs:
            newest = 0
            for what, tick in log:
                assert tick > newest, "data below a tick, or a tick that was sent before"
                newest = tick if what == "tick" else newest


TestTickPromise = TickPromise.TestCase
