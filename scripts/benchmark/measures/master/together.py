"""Figures that are only worth something side by side: measured at once, given out one by one."""

from collections.abc import Callable, Mapping

Values = Mapping[str, float]


class Together:
    """The figures of one round, by the names of their subjects.

    Asking for a figure a second time begins the next round.
    """

    def __init__(self, measure: Callable[[], Mapping[str, Values]]) -> None:
        self._measure = measure
        self._left: dict[str, Values] = {}

    def take(self, name: str) -> Values:
        """One subject's figures of this round."""
        if name not in self._left:
            self._left = dict(self._measure())
        return self._left.pop(name)
