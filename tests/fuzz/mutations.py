"""Inputs made of a corpus by a seed: the same seed makes the same inputs, on every machine.

No coverage leads it: that is for `scripts/fuzz.py`, whose finds are kept in the corpus.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

BYTES_MAX: Final = 8192
_NUMBERS: Final = (0, 1, 2, 127, 128, 255, 256, 16383, 16384, 65535, 1 << 31, (1 << 32) - 1)
_LONG: Final = (1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TEXTS: Final = (
    *(b"\xff" * 9 + b"\x01", b"\x80" * 11, b"../", b"\x00", b"\xed\xa0\x80", b"\xc3\xa9"),
    *(b"null", b"Infinity", b"1e999", b"[" * 64, b"9" * 5000, "٣".encode(), "²".encode()),
)


def inputs(
    corpus: Sequence[bytes], seed: int, count: int, bytes_max: int = BYTES_MAX
) -> Iterator[bytes]:
    """So many inputs, each a changed one of the corpus, which must not be empty."""
    dice = random.Random(seed)
    for _ in range(count):
        made = bytearray(dice.choice(corpus))
        for _ in range(dice.randrange(1, 6)):
            _change(made, dice, corpus)
        yield bytes(made[:bytes_max])


def _change(made: bytearray, dice: random.Random, corpus: Sequence[bytes]) -> None:
    at = dice.randrange(len(made) + 1)
    match dice.randrange(8):
        case 0 if at < len(made):
            made[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(made):
            made[at] = dice.randrange(256)
        case 2:
            del made[at : at + dice.randrange(1, 17)]
        case 3:
            made[at:at] = made[at : at + dice.randrange(1, 65)] * dice.randrange(1, 4)
        case 4:
            width = dice.choice((1, 2, 4, 8))
            number = dice.choice(_NUMBERS + _LONG) % (1 << 8 * width)
            made[at : at + width] = number.to_bytes(width, dice.choice(("little", "big")))
        case 5:
            made[at:at] = dice.choice(_TEXTS)
        case 6:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            made[at : at + dice.randrange(33)] = other[start : start + dice.randrange(65)]
        case _:
            del made[at:]
