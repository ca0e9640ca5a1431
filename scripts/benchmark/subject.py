"""One thing that is measured, and how much of it."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmark.measures.master.together import Values
from benchmark.processes import Server
from benchmark.results.figures import Round, Series


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured: rounds, messages of a rate, seconds at a fixed rate and of idling."""

    rounds: int
    messages: int
    seconds: float
    idle_seconds: float

    @property
    def long(self) -> int:
        """Messages of a read that has to join a group, and to wait for its last answers."""
        return 4 * self.messages

    @property
    def times(self) -> int:
        """The number of appends that are measured one by one."""
        return max(50, min(1000, self.messages // 60))


@dataclass(slots=True)
class Subject:
    """One thing that is measured: its results, how to run it once, and on which server.

    `warm` runs before each round, and is not measured.
    """

    series: Series
    run: Callable[[], Values]
    server: Server | None = None
    warm: Callable[[], object] = lambda: None

    def once(self) -> None:
        """Run one round."""
        self.warm()
        if self.server is None:
            self.series.rounds.append(Round(self.run()))
            return
        self.server.forget_peak()
        before_s = self.server.cpu_s()
        values = self.run()
        used_s = self.server.cpu_s() - before_s
        self.series.rounds.append(Round(values, used_s, self.server.peak_bytes()))
