"""Arrow rows in a body: what comes out is what went in, and what is hostile goes nowhere.

Damaged bodies are read by a process of its own with little memory, because what this is about is a
library that crashes or grows.
"""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.arrow import ipc
from schemas.arrow.columns import Misfit, encode_schema
from schemas.arrow.ipc import BadArrow, outline
from schemas.arrow.rows import Bounds, check_rows, decode_rows, encode_rows, select_columns
from tests.schemas.some_rows import BOUNDS, SCHEMA, rows

ROOT = Path(__file__).resolve().parents[3]
MEMORY_BYTES = 2 << 30
PACKINGS = [None, "lz4", "zstd"]
WIDTHS = (len(SCHEMA),)


def check(body: bytes, schema: Any = SCHEMA, bounds: Bounds = BOUNDS) -> Any:
    return check_rows(body, encode_schema(schema), (len(schema),), bounds)


@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_are_read_as_they_were_written(packing: str | None) -> None:
    body = encode_rows(rows(7), packing)
    assert decode_rows(body).equals(rows(7))
    checked = check(body)
    assert (checked.version, checked.rows) == (1, 7)
    assert checked.unpacked_bytes <= checked.text_bytes
    assert outline(body).packing == packing


@pytest.mark.parametrize("packing", PACKINGS)
def test_any_arrow_library_reads_a_body_as_a_stream(packing: str | None) -> None:
    body = encode_rows(rows(3), packing)
    assert pa.ipc.open_stream(body).read_all().equals(pa.Table.from_batches([rows(3)]))


@pytest.mark.parametrize("packing", PACKINGS)
def test_columns_are_taken_out_and_stay_packed(packing: str | None) -> None:
    body = encode_rows(rows(500), packing)
    part = select_columns(body, frozenset({"map", "truth", "unknown"}))
    assert decode_rows(part).equals(rows(500).select(["truth", "map"]))
    assert outline(part).packing == packing
    assert len(part) < len(body) // 2
    assert select_columns(body, frozenset(SCHEMA.names)) == body
    assert decode_rows(select_columns(body, frozenset({"unknown"}))).num_rows == 500


def test_a_part_of_rows_takes_only_its_own_room() -> None:
    assert len(encode_rows(rows(1000).slice(10, 1))) < 4 * len(encode_rows(rows(1)))


def plain(count: int = 4) -> Any:
    return pa.record_batch({"n": pa.array(range(count), pa.int32())})


BODY = encode_rows(plain())


def overwritten(body: bytes, old: int, new: int) -> bytes:
    """A body with one number of 64 bits, which it has once, replaced."""
    raw = old.to_bytes(8, "little", signed=True)
    assert body.count(raw) == 1, old
    return body.replace(raw, new.to_bytes(8, "little", signed=True))


def stream(*batches: Any, schema: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


NUMBERED = encode_rows(pa.record_batch({"n": pa.array([7] * 111, pa.int32())}))  # 444 bytes
CLAIMS = encode_rows(pa.record_batch({"n": pa.array([7] * 111, pa.int32())}), "zstd")
WORDS = pa.record_batch({"n": pa.array(["a", "bc"])})
DICTIONARY = pa.record_batch({"n": pa.array(["a", "a"]).dictionary_encode()})

HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "0 bytes end"),
    "no arrow": (b"x" * 64, "no Arrow message begins"),
    "cut short": (BODY[:-8], "the record batch has"),
    "something behind it": (BODY + bytes(8), "nothing behind it"),
    "an end of stream": (stream(plain()), "nothing behind it"),
    "two batches": (stream(plain(), plain()), "nothing behind it"),
    "a schema alone": (encode_schema(plain().schema), "end before"),
    "a batch alone": (bytes(plain().serialize()), "type 3; expected a schema"),
    "no rows": (encode_rows(plain(0)), "0 rows"),
    "too many rows": (encode_rows(plain(20_000)), "20000 rows"),
    "a buffer that is longer than all": (overwritten(NUMBERED, 444, 1 << 40), "a buffer of"),
    "a buffer of less than nothing": (overwritten(NUMBERED, 444, -1), "a buffer of -1"),
    "a dictionary": (stream(DICTIONARY)[:-8], "type 2; expected a record batch"),
    "a bomb": (overwritten(CLAIMS, 444, 1 << 40), "over the limit"),
    "a bomb of less than nothing": (overwritten(CLAIMS, 444, -5), "-5 bytes"),
    "packed otherwise than it says": (overwritten(CLAIMS, 444, 1024), "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_and_not_followed(name: str) -> None:
    body, says = HOSTILE[name]
    with pytest.raises(BadArrow, match=says):
        check(body, plain().schema)


def test_texts_whose_offsets_lead_elsewhere_are_refused() -> None:
    body = encode_rows(WORDS)
    good = b"".join(it.to_bytes(4, "little") for it in (0, 1, 3))
    assert body.count(good) == 1
    for offsets in ((0, 9, 3), (0, 1, 900), (5, 1, 3), (0, 2**32 - 1, 3)):
        bad = body.replace(good, b"".join(it.to_bytes(4, "little") for it in offsets))
        with pytest.raises(BadArrow, match="damaged"):
            check(bad, WORDS.schema)
    with pytest.raises(BadArrow, match="damaged"):
        check(body.replace(b"abc", b"a\xff\xfe"), WORDS.schema)


def test_a_few_bytes_do_not_stand_for_many_values() -> None:
    truths = pa.record_batch({"n": pa.array([[True] * 5_000_000], pa.list_(pa.bool_()))})
    with pytest.raises(BadArrow, match="5000001 values"):
        check(encode_rows(truths, "zstd"), truths.schema)


def test_a_schema_larger_than_any_is_not_read() -> None:
    many = pa.schema([(f"c{at}" + "x" * 200, pa.int8()) for at in range(400)])
    body = encode_rows(pa.RecordBatch.from_pylist([{}], many))
    with pytest.raises(BadArrow, match=f"the limit is {ipc.SCHEMA_BYTES_MAX}"):
        check(body)


def test_null_counts_where_the_collection_has_none() -> None:
    strict = pa.schema([pa.field("n", pa.int32(), nullable=False)])
    assert check(encode_rows(plain()), strict).rows == 4
    with pytest.raises(Misfit, match="2 of 3 values"):
        check(encode_rows(pa.record_batch({"n": pa.array([1, None, None], pa.int32())})), strict)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_damaged_bodies_end_as_refusals_or_as_rows(seed: int) -> None:
    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    # Appended to the path, as for all tests: where a wheel is installed, it is what is tested.
    run = (
        f"import sys, runpy; sys.path.append({str(ROOT)!r});"
        " runpy.run_module('tests.schemas.some_rows', run_name='__main__')"
    )
    command = [sys.executable, "-X", "faulthandler", "-c", run, str(seed)]
    done = subprocess.run(
        [*command, "2000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=little_memory,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 500
