"""Which acknowledgements go together: any order of requests, answers and timers."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.client.groups.gathered_acks import FLIGHTS_MAX, GatheredAcks
from broker.client.groups.settle_request import SettleRequest
from schemas.generated.tidemark import v1
from tests.broker.client.groups.test_gathered_acks import request

HOW = {"ack": v1.Settlement.ACKNOWLEDGE, "nack": v1.Settlement.RETURN}


class Stream:
    """What was sent and is kept, as a model; what lingers departs when it is told to."""

    def __init__(self) -> None:
        self.acks = GatheredAcks()
        self.begun = 0
        self.sent: list[int] = []
        self.flights: list[set[int]] = []
        self.kept: list[int] = []
        self.lingers = False

    def begin(self, how: v1.Settlement) -> None:
        self.begun += 1
        each = request(how)
        each.number = self.begun
        together = self.acks.admit(each)
        if how == v1.Settlement.ACKNOWLEDGE:
            self.kept.append(each.number)
        else:
            assert [it.number for it in together] == [*self.kept, each.number]
            together = together[:-1]
        self._go(together)

    def over(self, number: int) -> None:
        for flight in self.flights:
            flight.discard(number)
        self.flights = [it for it in self.flights if it]
        if number in self.kept:
            self.kept.remove(number)
        linger_s = self.acks.over(number)
        self.lingers = linger_s is not None or self.lingers
        if linger_s == 0.0:
            self.depart()

    def depart(self) -> None:
        if self.lingers:
            self.lingers = False
            self._go(self.acks.depart())

    def _go(self, together: Sequence[SettleRequest]) -> None:
        went = [it.number for it in together]
        assert went == self.kept[: len(went)], "in order"
        del self.kept[: len(went)]
        self.sent += went
        if went:
            self.flights.append(set(went))


@given(st.lists(st.tuples(st.sampled_from(["ack", "nack", "over", "depart"]), st.integers(0, 30))))
def test_each_goes_once_and_nothing_is_left_when_all_are_over(
    steps: list[tuple[str, int]],
) -> None:
    stream = Stream()
    for what, number in steps:
        if what in HOW:
            stream.begin(HOW[what])
        elif what == "over":
            stream.over(number)
        else:
            stream.depart()
        assert len(stream.flights) <= FLIGHTS_MAX or "nack" in dict(steps)
        assert not stream.kept or stream.flights or stream.lingers, "it waits for something"
    while stream.flights or stream.lingers:
        if stream.flights:
            stream.over(min(stream.flights[0]))
        else:
            stream.depart()
    assert not stream.kept
    assert len(stream.sent) == len(set(stream.sent))
