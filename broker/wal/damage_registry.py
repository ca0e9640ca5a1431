"""Remembers the damaged places of logs found since the process started, up to a limit.

Thread-safe: logs are read on several threads.
"""

import threading
from dataclasses import replace

from broker.model.damage import Damage
from broker.model.ids import PChannelName
from broker.ports.wal import Corrupt

PLACES_MAX = 1000
"""Beyond that, further places are only counted."""


class DamageRegistry:
    """Serves as `on_damage` of a `SegmentedWal`. `skipped`: whether reads go around damage."""

    def __init__(self, *, skipped: bool) -> None:
        self.skipped = skipped
        self._places: dict[tuple[str, int], Damage] = {}
        self._unnamed = 0
        self._lock = threading.Lock()

    def met(self, damage: Corrupt) -> bool:
        """Record a damaged place; return whether it is a new one."""
        place = damage.file, damage.offset
        with self._lock:
            known = self._places.get(place)
            if known is not None:
                self._places[place] = replace(known, times=known.times + 1)
                return False
            if len(self._places) >= PLACES_MAX:
                self._unnamed += 1
                return False
            self._places[place] = Damage(
                pchannel=PChannelName(damage.file.partition("/")[0]),
                file=damage.file,
                offset=damage.offset,
                reason=damage.reason,
                skipped=self.skipped,
                times=1,
            )
            return True

    def found(self) -> tuple[Damage, ...]:
        """The recorded places, sorted by file and offset."""
        with self._lock:
            return tuple(self._places[place] for place in sorted(self._places))

    @property
    def unnamed(self) -> int:
        """How often damage beyond `PLACES_MAX` was found."""
        return self._unnamed
