"""Rows of every type that a collection may have, and what hostile hands make of their bodies."""

import random
import sys
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from schemas.arrow.columns import encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.arrow.json_rows import rows_as_json
from schemas.arrow.rows import Bounds, check_rows, encode_rows, select_columns

SCHEMA = pa.schema(
    [
        ("truth", pa.bool_()),
        ("small", pa.int8()),
        ("large", pa.uint64()),
        ("real", pa.float64()),
        ("exact", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("ns", "UTC")),
        ("took", pa.duration("ms")),
        ("text", pa.string()),
        ("bytes", pa.large_binary()),
        ("fixed", pa.binary(2)),
        ("list", pa.list_(pa.timestamp("s"))),
        ("vector", pa.list_(pa.float32(), 3)),
        ("struct", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("map", pa.map_(pa.string(), pa.int16())),
        ("nothing", pa.null()),
    ]
)
ROW: dict[str, Any] = {
    "truth": True, "small": -5, "large": 2**64 - 1, "real": 0.5, "exact": Decimal("12.34"),
    "day": 19000, "at": 1_700_000_000_123_456_789, "took": timedelta(milliseconds=7),
    "text": "é\n", "bytes": b"\x00\xff", "fixed": b"ab", "list": [1, None, 3],
    "vector": [1.0, 2.0, 3.0], "struct": {"a": 1, "b": None}, "map": [("k", 1)], "nothing": None,
}  # fmt: skip
BOUNDS = Bounds(rows_max=16_384, unpacked_bytes_max=1 << 20)


def rows(count: int) -> Any:
    """The same row many times, with a row of nulls at the end."""
    empty = dict.fromkeys(ROW)
    return pa.RecordBatch.from_pylist([*[ROW] * (count - 1), empty], SCHEMA)


def mutated(body: bytes, dice: random.Random) -> bytes:
    """Numbers replaced by others where they hurt, bytes lost, doubled or moved."""
    damaged = bytearray(body)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(damaged))
        match dice.randrange(5):
            case 0:
                damaged[at] = dice.randrange(256)
            case 1:
                number = dice.choice([0, 1, -1, 2**31, 2**32 - 1, 2**62, -(2**63), 64, 4096])
                at -= at % 8
                damaged[at : at + 8] = (number % 2**64).to_bytes(8, "little")
            case 2:
                del damaged[at : at + dice.randrange(1, 64)]
            case 3:
                damaged[at:at] = damaged[at : at + dice.randrange(1, 64)]
            case _:
                other = dice.randrange(len(damaged))
                damaged[at : at + 8] = damaged[other : other + 8]
        if not damaged:
            return b""
    return bytes(damaged)


def attack(seed: int, rounds: int) -> int:
    """How many of so many damaged bodies were refused; the others can be read in every way."""
    dice = random.Random(seed)
    bodies = [encode_rows(rows(7), packing) for packing in (None, "lz4", "zstd")]
    schema, refused = encode_schema(SCHEMA), 0
    for _ in range(rounds):
        body = mutated(dice.choice(bodies), dice)
        try:
            checked = check_rows(body, schema, (len(SCHEMA),), BOUNDS)
        except BadArrow:
            refused += 1
            continue
        assert len(rows_as_json(body, 0, checked.rows)) == checked.rows
        select_columns(body, frozenset({"text", "map"}))
    return refused


if __name__ == "__main__":
    sys.stdout.write(str(attack(int(sys.argv[1]), int(sys.argv[2]))))
