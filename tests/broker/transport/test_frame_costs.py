"""Which frames cost a peer something, and which do not."""

from broker.transport.frame_costs import cost_of
from tests.wire.raw_peer import http_frame

END_STREAM, ACK = 1, 1


def cost(kind: int, payload: bytes = b"", flags: int = 0) -> int:
    frame = http_frame(kind, payload, flags, 1)
    return cost_of(b"before" + frame + b"behind", 6, 6 + len(frame))


def test_what_carries_something_or_ends_something_is_free() -> None:
    assert cost(0, b"a") == cost(0, b"", END_STREAM) == cost(1, b"block") == 0


def test_empty_data_pings_priorities_and_unknown_frames_cost_the_same() -> None:
    assert cost(0) == cost(6, b"8 bytes.") - 2 == cost(2, b"12345") - 1 == cost(0xBE) > 0


def test_settings_cost_more_the_more_there_are() -> None:
    assert cost(4, bytes(600)) > cost(4, bytes(6)) > cost(3, bytes(4)) > cost(8, bytes(4)) > 0
