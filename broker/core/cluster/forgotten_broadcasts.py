"""Which broadcasts of another cluster took effect here, although their records are deleted.

A copy may come again long after: running it twice would be wrong. Nor may a late one be taken for
a repeat: broadcasts finish in any order, so one with a smaller id may be new. So the newest ids are
remembered one by one; everything up to `horizon` counts as forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.model.ids import BroadcastId

IDS_MAX = 8192
"""Remembered one by one for each cluster."""


@dataclass(frozen=True, slots=True)
class ForgottenIds:
    """Those of one cluster. `ids` are all above `horizon`."""

    horizon: BroadcastId = BroadcastId(0)
    ids: frozenset[BroadcastId] = frozenset()

    def covers(self, id: BroadcastId) -> bool:
        """Whether this broadcast took effect and was forgotten."""
        return id <= self.horizon or id in self.ids

    def and_also(self, more: Iterable[BroadcastId], ids_max: int = IDS_MAX) -> "ForgottenIds":
        """With these too; beyond `ids_max` the smallest ids raise the horizon."""
        ids = sorted({*self.ids, *[each for each in more if each > self.horizon]})
        beyond = max(0, len(ids) - ids_max)
        horizon = ids[beyond - 1] if beyond else self.horizon
        return ForgottenIds(horizon, frozenset(ids[beyond:]))
