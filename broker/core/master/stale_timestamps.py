"""The newest timestamp of a planned change for each name, so that an older one is refused."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from broker.model.broadcast import ResourceDomain, ResourceKey

NAMES_MAX: Final = 65_536


class PlannedTimestamps:
    """Of the exclusive keys of changes. Forgotten names count as planned at the newest of them."""

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[ResourceDomain, str], int] = OrderedDict()
        self._forgotten = 0

    def newest(self, keys: Iterable[ResourceKey]) -> int:
        """The newest timestamp that was planned for one of these names; 0: none."""
        found = [self._newest.get((it.domain, it.key), self._forgotten) for it in _exclusive(keys)]
        return max(found, default=0)

    def planned(self, keys: Iterable[ResourceKey], timestamp: int) -> None:
        """A change of these names was planned at this timestamp; 0: without one."""
        if not timestamp:
            return
        for it in _exclusive(keys):
            name = it.domain, it.key
            self._newest[name] = max(timestamp, self._newest.pop(name, 0))
        while len(self._newest) > NAMES_MAX:
            _, oldest = self._newest.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)


def _exclusive(keys: Iterable[ResourceKey]) -> list[ResourceKey]:
    return [it for it in keys if not it.shared]
