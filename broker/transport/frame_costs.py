"""What it costs to read frames that carry no message, and how much of that one peer may cause.

A peer may send them as fast as it likes, and h2 takes 10 to 100 microseconds for each: one peer
could keep the event loop busy alone. Beyond the rate below its connection is read more slowly, and
no other. Nothing is refused: a client that does so for a reason only waits for itself.
"""

from typing import Final

from schemas.encoding.data_frames import DATA, HEAD_BYTES

UNITS_A_SECOND: Final = 8_000
"""About a twentieth of a core: 2,000 pings, 1,000 resets or 250 settings a second."""
UNITS_AT_ONCE: Final = 8_192
"""A client may cancel 1,000 calls at one moment."""
FRAMES_AT_ONCE: Final = 32
FRAMES_A_TURN: Final = 64
"""Then other connections have theirs, also when all is paid for: 64 calls that begin at once take
30 ms, and a read of 256 KiB may bring thousands."""
HEADER_BYTES_A_UNIT: Final = 16
"""Of long headers: h2 looks at each byte of them."""
REFUSED_CALL: Final = 40
"""A call that ends with a refusal, or is of no method: 200 of them a second."""
_BYTES_A_UNIT: Final = 4
"""Of frames that are lists: each entry is six bytes, and takes some microseconds."""
_HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 1, 3, 4, 6, 8
_END_STREAM: Final = 1
_COSTS: Final = {
    # They open calls, whose number and rate have limits of their own.
    _HEADERS: 0,
    # A call was begun for nothing, and is taken back.
    _RESET: 8,
    # With it the windows of all open streams may change.
    _SETTINGS: 32,
    # A reader of small messages sends one for each few.
    _WINDOW_UPDATE: 1,
}
_OTHERS: Final = 4


def cost_of(data: bytes, at: int, after: int) -> int:
    """What the frame at `data[at:after]` costs, in units; 0 for one that carries something."""
    kind = data[at + 3]
    size = after - at - HEAD_BYTES
    if kind == DATA:
        return 0 if size or data[at + 4] & _END_STREAM else _OTHERS
    cost = _COSTS.get(kind, _OTHERS)
    return cost + size // _BYTES_A_UNIT if cost else 0
