"""Windows by the clock of the senders, against a model that knows the whole log."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.msgstream.sender_windows import Resume, SenderWindow, SenderWindows, Sent

CHANNELS = ("a", "b")


class Data(NamedTuple):
    name: str
    ts: int


Entry = Data | int
"""A message, or the value of a time tick."""
Log = Mapping[str, list[Entry]]


def at(index: int) -> bytes:
    return index.to_bytes(2, "big")


class Reader:
    """Reads logs into windows from some positions on, one entry at a time."""

    def __init__(self, log: Log, resumed: Mapping[str, Resume] | None = None) -> None:
        self.log = log
        self.windows = SenderWindows[Data](log, resumed)
        starts = dict.fromkeys(log, Resume()) | dict(resumed or {})
        self.next = {
            name: int.from_bytes(it.place, "big") if it.place else 0 for name, it in starts.items()
        }

    def can_step(self, channel: str) -> bool:
        return self.windows.wants(channel) and self.next[channel] < len(self.log[channel])

    def step(self, channel: str) -> None:
        index = self.next[channel]
        self.next[channel] += 1
        match self.log[channel][index]:
            case Data() as data:
                self.windows.add(channel, Sent(data.ts, at(index), 1, data))
            case int(tick):
                self.windows.tick(channel, tick, at(index))

    def all(self) -> list[SenderWindow[Data]]:
        found = []
        while True:
            if self.windows.ready:
                found.append(self.windows.take())
                continue
            possible = [it for it in self.log if self.can_step(it)]
            if not possible:
                return found
            self.step(possible[0])


def a(ts: int) -> Data:
    return Data(f"a{ts}", ts)


def b(ts: int) -> Data:
    return Data(f"b{ts}", ts)


def test_leftovers_wait_for_their_window_and_the_position_names_the_first() -> None:
    log: Log = {"a": [a(5), 10, a(25), a(15), 20, 30], "b": [b(8), 10, b(12), 20, b(22), 30]}
    first, second, third = Reader(log).all()
    assert (first.begin, first.end, first.messages) == (0, 10, [a(5), b(8)])
    assert (second.begin, second.end, second.messages) == (10, 20, [a(15), b(12)])
    assert second.ends["a"] == Resume(at(2), at(4), 20)  # a25 is left over
    assert second.ends["b"] == Resume(at(3), at(3), 20)  # the time tick itself
    assert (third.begin, third.end, third.messages) == (20, 30, [a(25), b(22)])


def test_a_tick_that_one_channel_lost_joins_two_windows() -> None:
    log: Log = {"a": [a(5), 10, a(15), 20, 30], "b": [b(8), b(18), 20, 30]}
    first, second = Reader(log).all()
    assert (first.begin, first.end, first.messages) == (0, 20, [a(5), a(15), b(8), b(18)])
    assert (second.begin, second.end, second.messages) == (20, 30, [])


def test_what_comes_behind_its_tick_is_in_the_next_window_and_counted() -> None:
    reader = Reader({"a": [a(5), 10, a(7), Data("no time", 0), 20]})
    first, second = reader.all()
    assert (first.messages, first.late) == ([a(5)], 0)
    assert (second.messages, second.late) == ([a(7), Data("no time", 0)], 1)
    assert reader.windows.late == 1


def test_a_tick_that_goes_back_is_ignored_and_counted() -> None:
    windows = SenderWindows[Data](["a"])
    assert windows.tick("a", 10, at(0))
    assert not windows.tick("a", 9, at(1))
    assert windows.tick("a", 10, at(2))  # a repeat is no harm
    assert windows.ticks_back == 1
    assert windows.take().end == 10


def test_the_channel_that_stopped_ticking_is_named_and_the_other_one_waits() -> None:
    windows = SenderWindows[Data](CHANNELS)
    assert windows.behind == ["a", "b"]
    windows.tick("a", 10, at(0))
    assert windows.behind == ["b"]
    assert not windows.wants("a")
    assert windows.wants("b")
    assert not windows.ready
    assert not windows.unmet


def test_ticks_that_never_meet_end_a_window_at_their_minimum() -> None:
    windows = SenderWindows[Data](CHANNELS)
    windows.add("a", Sent(12, at(0), 1, a(12)))
    windows.tick("a", 15, at(1))
    windows.add("b", Sent(13, at(0), 1, b(13)))
    windows.add("b", Sent(19, at(1), 1, b(19)))
    windows.tick("b", 20, at(2))
    assert windows.unmet
    window = windows.take_unmet()
    assert (window.end, window.messages) == (15, [a(12), b(13)])
    # The newest tick of b is read again after a restart, and what it has left over.
    assert window.ends["b"] == Resume(at(1), at(2), 15)
    again = SenderWindows[Data](CHANNELS, window.ends)
    again.add("b", Sent(13, at(0), 1, b(13)))
    again.add("b", Sent(19, at(1), 1, b(19)))
    again.tick("b", 20, at(2))
    again.tick("a", 15, at(1))
    assert not again.ready
    again.tick("a", 20, at(2))
    assert again.take().messages == [b(19)]


def test_an_old_tick_that_is_read_again_is_no_news() -> None:
    windows = SenderWindows[Data](["a"], {"a": Resume(at(0), at(2), 20)})
    assert windows.end == 20
    assert windows.tick("a", 10, at(1))
    assert windows.ticks_back == 0


def test_no_more_is_read_than_may_wait() -> None:
    windows = SenderWindows[Data](CHANNELS, bytes_max=2)
    windows.add("a", Sent(1, at(0), 2, a(1)))
    assert windows.full
    assert not windows.wants("a")


@pytest.mark.parametrize("take", ["take", "take_unmet"])
def test_taking_what_is_not_there_is_a_bug_of_the_caller(take: str) -> None:
    with pytest.raises(AssertionError):
        getattr(SenderWindows[Data](CHANNELS), take)()


@st.composite
def entries(draw: st.DrawFn) -> Log:
    """Logs with ticks that some channels lack, late messages, and ticks that go back."""
    log: dict[str, list[Entry]] = {}
    for name in CHANNELS:
        kinds = st.one_of(st.integers(1, 30).map(lambda ts: Data("", ts)), st.integers(1, 30))
        made = draw(st.lists(kinds, max_size=25))
        log[name] = [
            Data(f"{name}{index}", it.ts) if isinstance(it, Data) else it
            for index, it in enumerate(made)
        ]
    return log


def model(log: Log) -> list[tuple[int, set[str]]]:
    """The naive model, which knows the whole log: the ends of windows, and what is in each."""
    met = set.intersection(*[{it for it in each if isinstance(it, int)} for each in log.values()])
    newest, reached = dict.fromkeys(log, 0), []
    for tick in sorted(met):
        # The place of the first such tick that is no step back.
        places = {}
        for name, each in log.items():
            high = 0
            for index, it in enumerate(each):
                if isinstance(it, int) and it >= high:
                    high = it
                    if it == tick:
                        places[name] = index
                        break
        if len(places) == len(log) and all(places[it] >= newest[it] for it in log):
            reached.append((tick, places))
            newest = places
    windows: list[tuple[int, set[str]]] = []
    taken: set[str] = set()
    for tick, places in reached:
        inside = {
            it.name
            for name, each in log.items()
            for it in each[: places[name]]
            if isinstance(it, Data) and it.ts <= tick and it.name not in taken
        }
        taken |= inside
        windows.append((tick, inside))
    return windows


def shown(found: list[SenderWindow[Data]]) -> list[tuple[int, set[str]]]:
    return [(it.end, {each.name for each in it.messages}) for it in found]


@given(entries(), st.randoms(use_true_random=False))
def test_windows_are_those_of_the_model_whatever_is_read_first(log: Log, chance: object) -> None:
    reader, found = Reader(log), []
    while True:
        if reader.windows.ready:
            found.append(reader.windows.take())
            continue
        possible = [it for it in log if reader.can_step(it)]
        if not possible:
            break
        reader.step(chance.choice(possible))  # type: ignore[attr-defined]
    assert shown(found) == model(log)
    assert reader.windows.late == sum(
        1 for window in found for each in window.messages if each.ts <= window.begin
    )


@given(entries())
def test_from_any_end_the_same_windows_follow(log: Log) -> None:
    found = Reader(log).all()
    for index, window in enumerate(found):
        rest = Reader(log, window.ends).all()
        assert rest == found[index + 1 :]


@given(entries(), st.randoms(use_true_random=False))
def test_also_with_windows_that_did_not_meet_nothing_is_lost_or_repeated(
    log: Log, chance: object
) -> None:
    log = {name: [*each, 31] for name, each in log.items()}  # in the end everything is promised
    reader = Reader(log)
    given_out: list[str] = []
    while reader.windows.end < 31:
        possible = [it for it in log if reader.can_step(it)]
        if reader.windows.ready:
            window = reader.windows.take()
        elif reader.windows.unmet and chance.random() < 0.5:  # type: ignore[attr-defined]
            window = reader.windows.take_unmet()
        else:
            reader.step(chance.choice(possible))  # type: ignore[attr-defined]
            continue
        given_out += [it.name for it in window.messages]
        assert all(it.ts <= window.end for it in window.messages)
        if chance.random() < 0.5:  # type: ignore[attr-defined]
            reader = Reader(log, window.ends)  # it died, and another one continues
    every = [it.name for each in log.values() for it in each if isinstance(it, Data)]
    assert sorted(given_out) == sorted(every)
