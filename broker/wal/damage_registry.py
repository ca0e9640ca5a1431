"""The damaged places of the logs that this process has met since it started.

Owns the list, bounded; filled from the threads that read. It repairs nothing and refuses nobody.
Next: broker/wal/segmented/segmented_wal.py
"""

import threading
from dataclasses import replace

from broker.model.damage import Damage
from broker.model.ids import PChannelName
from broker.ports.wal import Corrupt

PLACES_MAX = 1000
"""Places remembered by name; one more is only counted."""


class DamageRegistry:
    """What `SegmentedWal` is given as `on_damage`: call it with each one."""

    def __init__(self, *, skipped: bool) -> None:
        self.skipped = skipped
        self._places: dict[tuple[str, int], Damage] = {}
        self._unnamed = 0
        self._lock = threading.Lock()

    def met(self, damage: Corrupt) -> bool:
        """Remember it; whether it is one that was not met before."""
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
        """Those remembered, by file and offset."""
        with self._lock:
            return tuple(self._places[place] for place in sorted(self._places))

    @property
    def unnamed(self) -> int:
        """How often one was met that found no place in the list."""
        return self._unnamed
