"""Timers on the beat: they share a wake-up, keep to the clock, and skip what is late."""

from collections.abc import Callable
from functools import partial

from actors.beats import Beats
from actors.clock import Alarm
from actors.testing import VirtualClock
from tests.actors.troupe import Nap, Troupe, seeded


class CountedClock(VirtualClock):
    """Counts the alarms that were set."""

    alarms = 0

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        self.alarms += 1
        return super().call_later(delay_s, callback)


@seeded
async def test_calls_of_one_beat_share_an_alarm_and_come_in_order() -> None:
    clock = CountedClock()
    beats, rung = Beats(clock), list[str]()
    await clock.sleep(0.31)
    for name, period_s in (("a", 0.2), ("b", 0.1), ("c", 0.4)):
        beats.call_at_next(period_s, 0.0, partial(rung.append, name))
    beats.call_at_next(0.2, 0.05, lambda: rung.append("d"))
    assert clock.alarms == 2, "one at 0.4, one at 0.45"
    await clock.sleep(0.1)
    assert rung == ["a", "b", "c"]
    await clock.sleep(0.05)
    assert rung == ["a", "b", "c", "d"]


@seeded
async def test_a_cancelled_call_is_not_made_even_by_a_call_of_the_same_beat() -> None:
    clock = CountedClock()
    beats, rung = Beats(clock), list[str]()
    later = list[Alarm]()

    def cancel_later() -> None:
        later[0].cancel()

    beats.call_at_next(1.0, 0.0, cancel_later)
    later.append(beats.call_at_next(1.0, 0.0, lambda: rung.append("second")))
    third = beats.call_at_next(1.0, 0.0, lambda: rung.append("third"))
    third.cancel()
    third.cancel()
    await clock.sleep(3)
    assert rung == []
    lone = beats.call_at_next(1.0, 0.0, lambda: rung.append("lone"))
    lone.cancel()
    await clock.sleep(3)
    assert rung == []


@seeded
async def test_a_beat_that_is_almost_reached_is_not_rung_twice() -> None:
    clock = VirtualClock()
    beats, rung = Beats(clock), list[float]()
    await clock.sleep(0.9996)  # an alarm for 1.0 that came early
    beats.call_at_next(1.0, 0.0, lambda: rung.append(round(clock.monotonic_s(), 3)))
    await clock.sleep(2)
    assert rung == [2.0]


@seeded
async def test_a_timer_on_the_beat_keeps_to_the_clock_after_a_late_one() -> None:
    async with Troupe("a") as troupe:
        await troupe.clock.sleep(0.3)
        context = troupe.player("a").context
        timer = context.on_beat(1.0, "tick", 0.5)
        context.on_beat(1.0, "once", 0.5, once=True)
        await troupe.clock.sleep(0.3)
        assert troupe.got() == ["a@1 got tick", "a@1 got once"]
        troupe.ref("a").tell(Nap(2.2))
        await troupe.clock.sleep(2.3)
        await troupe.clock.sleep(0.7)
        assert troupe.got().count("a@1 got tick") == 3, "1.5 and 2.5 came as one, then 3.5"
        timer.cancel()
        await troupe.clock.sleep(5)
        assert troupe.got().count("a@1 got tick") == 3
