"""Decides when freed memory is returned to the system, and how much the tails may hold.

The process is to stay within `tails_bytes_max` and OTHER_BYTES, whatever it is used for. Two
things would exceed that: pages that the allocator keeps of what was freed, and anything but tails
that takes more than OTHER_BYTES, such as many vchannels, open transactions or Arrow's library.

Why pages of freed memory are not returned at once: the next message takes them again, and a new
page costs more than copying into it (here 0.8 ms per MiB against 0.04).
"""

OTHER_BYTES = 100_000_000
"""What everything but the tails, FREED_BYTES_MAX included, may take before the tails get less."""

FREED_BYTES_MAX = 32 << 20
"""Kept free below the limit, for what is freed between two returns."""

RETURN_BYTES_MIN = 16 << 20
"""Less is not worth a return: the process will need it soon."""

RETURN_LOOKS = 3
"""Below the limit memory is returned that was unused at so many looks in a row."""


class ResidentMemory:
    """Looks at the memory of one process again and again; all sizes in bytes."""

    def __init__(self, tails_bytes_max: int) -> None:
        self.tails_bytes_max = tails_bytes_max
        """What the tails may hold now: what was configured, or less but at least half of it."""
        self._configured = tails_bytes_max
        self._limit = tails_bytes_max + OTHER_BYTES
        self._fixed: int | None = None
        """The least seen of what is resident and no block of the allocator."""
        self._looks = 0

    def look(self, resident: int, used: int, tails: int) -> bool:
        """Whether to return freed memory now. Sets `tails_bytes_max`.

        `resident`: of the process; `used`: blocks of the allocator in use, 0 when unknown, and
        then nothing is decided; `tails`: of that, what the tails hold.
        """
        if not used:
            return False
        outside = resident - used
        self._fixed = outside if self._fixed is None else min(self._fixed, outside)
        freed = outside - self._fixed
        self._looks = self._looks + 1 if freed >= RETURN_BYTES_MIN else 0
        self._share(resident - freed - tails)
        return self._looks >= RETURN_LOOKS or (self._looks > 0 and resident > self._limit)

    def returned(self, resident: int, used: int) -> None:
        """Note what is left after freed memory was returned."""
        # What still is no block in use is none of the allocator's, such as a library loaded since.
        self._fixed = resident - used
        self._looks = 0

    def _share(self, others: int) -> None:
        room = self._limit - FREED_BYTES_MAX - others
        self.tails_bytes_max = max(self._configured // 2, min(self._configured, room))
