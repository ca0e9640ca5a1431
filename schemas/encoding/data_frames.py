"""Reads HTTP/2 frames by position: a loop for peers that send a frame for each message."""

from typing import Final

HEAD_BYTES: Final = 9
DATA: Final = 0
"""The type of a DATA frame."""


def frame_end(data: bytes, position: int) -> int:
    """Where the frame at `position` ends, of which at least the head is here."""
    length = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
    return position + HEAD_BYTES + length


def plain_data(
    data: bytes, position: int, frame_bytes_max: int, window_bytes: int
) -> tuple[list[bytes], int, int]:
    """The contents of the DATA frames from `position` on that are of one stream.

    Also their size and where they end. Stops before a frame of another kind or stream, with flags
    (END_STREAM, padding), empty, over a limit, or unfinished.
    """
    contents: list[bytes] = []
    size, end = 0, len(data)
    # Type, flags and stream are six bytes that these frames share.
    kind = data[position + 3 : position + HEAD_BYTES]
    if len(kind) < 6 or kind[0] != DATA or kind[1]:
        return contents, size, position
    while position + HEAD_BYTES < end:
        length = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
        start = position + HEAD_BYTES
        if (
            not 0 < length <= frame_bytes_max
            or start + length > end
            or size + length > window_bytes
            or data[position + 3 : start] != kind
        ):
            break
        contents.append(data[start : start + length])
        size += length
        position = start + length
    return contents, size, position
