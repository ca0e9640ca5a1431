"""Rates between two answers of the broker, and their history. Counts nothing across an outage."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from broker.cli.top.broker_state import BrokerState
from broker.client.cluster import ServerTraffic, VChannelTraffic

STEP_S = 5.0
STEPS = 60
"""Five minutes of history."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Per second: messages and bytes appended, messages and bytes delivered to consumers."""

    messages: float = 0.0
    bytes: float = 0.0
    delivered: float = 0.0
    delivered_bytes: float = 0.0

    def plus(self, other: "Flow") -> "Flow":
        """The sum of both."""
        return Flow(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.delivered + other.delivered,
            self.delivered_bytes + other.delivered_bytes,
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second between two states. `flows` by vchannel, None: not known yet.

    `handled`: messages of each actor, by path; those of both states only.
    """

    flows: Mapping[str, Flow] | None = None
    handled: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @staticmethod
    def between(before: BrokerState | None, now: BrokerState) -> "Rates":
        """The rates from `before` to `now`, which are two answers without an outage between.

        What restarted in between counts from its restart, so no rate is below 0.
        """
        if before is None or now.at_s <= before.at_s:
            return Rates()
        seconds = now.at_s - before.at_s
        return Rates(_flows(before, now), _handled(before, now, seconds), seconds)

    def total(self) -> Flow | None:
        """All vchannels together."""
        if self.flows is None:
            return None
        total = Flow()
        for flow in self.flows.values():
            total = total.plus(flow)
        return total


def _handled(before: BrokerState, now: BrokerState, seconds: float) -> dict[str, float]:
    known = {(it.path, it.term): it.handled for it in before.actors}
    paths = {it.path for it in before.actors}
    found = {}
    for it in now.actors:
        if it.path in paths:
            earlier = known.get((it.path, it.term), 0)
            # A process that restarted may reach the same term again, with fewer messages.
            found[it.path] = (it.handled - (earlier if earlier <= it.handled else 0)) / seconds
    return found


def _flows(before: BrokerState, now: BrokerState) -> dict[str, Flow] | None:
    earlier = {it.process: it for it in before.traffic}
    comparable = [(earlier[it.process], it) for it in now.traffic if it.process in earlier]
    flows: dict[str, Flow] = {}
    measured = False
    for first, second in comparable:
        # The server's own clock: the time on the way does not count.
        seconds = (second.at_ms - first.at_ms) / 1000
        if seconds <= 0:
            continue
        measured = True
        for vchannel, flow in _flows_of(first, second, seconds):
            # A vchannel that moved was served by two processes.
            flows[vchannel] = flows[vchannel].plus(flow) if vchannel in flows else flow
    return flows if measured else None


def _flows_of(
    first: ServerTraffic, second: ServerTraffic, seconds: float
) -> Iterator[tuple[str, Flow]]:
    known = {it.serial: it for it in first.vchannels}
    for it in second.vchannels:
        yield it.vchannel, _flow(known.get(it.serial), it, seconds)


def _flow(first: VChannelTraffic | None, it: VChannelTraffic, seconds: float) -> Flow:
    """Without a first count the vchannel was counted from 0 after the first answer."""
    if first is None:
        counts = (it.messages, it.bytes, it.delivered, it.delivered_bytes)
    else:
        counts = (
            it.messages - first.messages,
            it.bytes - first.bytes,
            it.delivered - first.delivered,
            it.delivered_bytes - first.delivered_bytes,
        )
    return Flow(*[max(0, each) / seconds for each in counts])


@dataclass(slots=True)
class _Step:
    """Only names with messages are in `counts`."""

    number: int
    seconds: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)


class History:
    """Messages per second of the last minutes by name, in steps of `STEP_S`.

    A step in which nothing was measured, such as one of an outage, stays empty.
    """

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=STEPS + 1)

    def add(self, at_s: float, seconds: float, rates: Mapping[str, float]) -> None:
        """Note rates that were measured over the `seconds` before `at_s`."""
        start_s = max(at_s - seconds, at_s - STEPS * STEP_S)
        while at_s - start_s > 1e-9:
            number = int(start_s // STEP_S)
            end_s = min(at_s, (number + 1) * STEP_S)
            if end_s <= start_s:  # the limit of the precision of floats
                return
            self._add_to_step(number, end_s - start_s, rates)
            start_s = end_s

    def series(self, name: str, at_s: float, steps: int) -> list[float | None]:
        """The mean rates of the last steps, oldest first; None where nothing was measured."""
        last = int(at_s // STEP_S)
        known = {it.number: it for it in self._steps}
        wanted = (known.get(number) for number in range(last - steps + 1, last + 1))
        return [None if it is None else it.counts.get(name, 0.0) / it.seconds for it in wanted]

    def _add_to_step(self, number: int, seconds: float, rates: Mapping[str, float]) -> None:
        if not self._steps or self._steps[-1].number < number:
            self._steps.append(_Step(number))
        step = self._steps[-1]
        step.seconds += seconds
        for name, rate in rates.items():
            if rate > 0:
                step.counts[name] = step.counts.get(name, 0.0) + rate * seconds
