"""Which messages of an ordered group come one after the other, and which slot owns them.

A lane is a key, as a hash of 32 bits: two keys with the same hash only wait for each other. A slot
is what moves from member to member: all lanes with the same last bits.
"""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

SLOTS: Final = 256
"""Of a vchannel. With m members each has SLOTS // m of them, or one more."""
WHOLE: Final = 0
"""The only lane, and the only slot, of a vchannel that is ordered as a whole."""


def lanes_of(keys: Iterable[bytes | None]) -> tuple[int, ...]:
    """The lanes of messages that share a tick; those without a key are in none."""
    return tuple(sorted({crc32(key) for key in keys if key is not None}))


def slot_of(lane: int) -> int:
    """The slot of a lane."""
    return lane % SLOTS
