"""Splits Arrow rows into batches: each for one vchannel, and none larger than a server takes.

The rule that maps a key to its shard (`broker/core/sharding.py`) is here in a vectorised form: no
Python code runs for single rows, except that each distinct text is hashed once.
"""

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from broker.client.cluster.targets import Shards
from broker.client.errors import BadTarget, MessageTooLarge
from broker.core.sharding import hash_text
from broker.model.ids import VChannelName
from schemas.arrow.columns import arrow, flat
from schemas.arrow.ipc import SCHEMA_BYTES_MAX, BadArrow
from schemas.arrow.rows import TEXT_BYTES_MAX, VALUE_TEXT_BYTES, encode_rows

ROWS_MAX: Final = 8192
BODY_BYTES: Final = 1024 * 1024
"""The target size of a body: smaller ones cost more calls, larger ones delay others."""
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
_WORD: Final = 0xFFFFFFFF
_INT64_MAX: Final = (1 << 63) - 1

Piece = tuple[VChannelName, int, bytes]
"""The vchannel, the number of rows, and the encoded rows of one batch."""


def split_rows(
    rows: Any, shards: Shards, key: str | None, compression: str | None = None
) -> Iterator[Piece]:
    """The batches of a RecordBatch or Table, encoded one by one as they are consumed.

    Raises BadTarget, before the first, for anything else, for no rows, and for a key column that
    does not exist or has the wrong type; MessageTooLarge for a single row over the limit.
    """
    try:
        pa = arrow()
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise BadTarget(
                f"rows must be a pyarrow RecordBatch or Table, not {type(rows).__name__}"
            )
        if not rows.num_rows:
            raise BadTarget("there are no rows to append")
        if key is not None:
            _check_key(rows, key)
        form = _form(rows.schema)
        if not form.plain:
            rows = _plain(rows)
            form = _form(rows.schema)
        rows_at_once = _rows_at_once(rows, form.rows_max)
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        # When keys are spread evenly, each shard's share of a chunk is one batch.
        chunks = table.to_batches(max_chunksize=rows_at_once * len(shards.vchannels))
        parts = (part for chunk in chunks for part in _by_shard(chunk, shards, key))
        return _pieces(parts, rows_at_once, compression)
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _pieces(
    parts: Iterable[tuple[VChannelName, Any]], rows_at_once: int, compression: str | None
) -> Iterator[Piece]:
    for vchannel, part in parts:
        # A shard may get more than its share of a chunk: all of it, when all rows have one key.
        for start in range(0, part.num_rows, rows_at_once):
            yield from _bodies(vchannel, part.slice(start, rows_at_once), compression)


def _plain(rows: Any) -> Any:
    """Dictionary columns replaced by their values: the schema of a collection has no others."""
    pa = arrow()
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.schema.names)


def _rows_at_once(rows: Any, rows_max: int) -> int:
    """How many rows make a batch, if all are of about the same size."""
    if rows.get_total_buffer_size() <= BODY_BYTES:  # constant time, where `nbytes` adds up slices
        return rows_max
    row_bytes = max(1, int(rows.nbytes) // int(rows.num_rows))
    return max(1, min(rows_max, BODY_BYTES // row_bytes))


class _Form(NamedTuple):
    """Facts about all rows of one schema."""

    plain: bool
    """Whether no column is dictionary-encoded."""
    rows_max: int
    """How many rows a server takes in one batch: it counts the column names once for each row."""


# Cached: programs append many small tables of few schemas.
@lru_cache(maxsize=64)
def _form(schema: Any) -> _Form:
    plain = not any(map(arrow().types.is_dictionary, schema.types))
    # 6: the longest escape of a character in JSON. Names get a quarter of the limit, because values
    # and the elements of lists count as well, and are not looked at here.
    names = sum([VALUE_TEXT_BYTES + 6 * len(field.name) for field in flat(schema)])
    return _Form(plain, max(1, min(ROWS_MAX, TEXT_BYTES_MAX // 4 // max(1, names))))


def _bodies(vchannel: VChannelName, part: Any, compression: str | None) -> Iterator[Piece]:
    """Encode rows, halving them until each body fits: rows may differ in size."""
    body = encode_rows(part, compression)
    # The server limits the size after unpacking.
    size = part.nbytes if compression else len(body)
    if size <= BODY_BYTES_MAX // 2:
        yield vchannel, part.num_rows, body
    elif part.num_rows > 1:
        half = part.num_rows // 2
        yield from _bodies(vchannel, part.slice(0, half), compression)
        yield from _bodies(vchannel, part.slice(half), compression)
    elif size <= BODY_BYTES_MAX - SCHEMA_BYTES_MAX:
        # The body has the schema too, which `nbytes` does not count.
        yield vchannel, 1, body
    else:
        raise MessageTooLarge(f"one row of {size} bytes; a server takes at most {BODY_BYTES_MAX}")


# ---- shards ---------------------------------------------------------------------------------


def _check_key(table: Any, key: str) -> None:
    types, schema = arrow().types, table.schema
    if len(schema.get_all_field_indices(key)) != 1:
        raise BadTarget(f"the rows have no column {key!r} to use as key; columns: {schema.names}")
    kind = schema.field(key).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_integer(kind) or _is_text(kind)):
        raise BadTarget(f"column {key!r} is {kind}; a key must be integers, strings or binary")
    # Keys are hashed as signed integers, as Milvus does; only uint64 has values beyond that.
    if types.is_uint64(kind) and (arrow().compute.max(table[key]).as_py() or 0) > _INT64_MAX:
        raise BadTarget(f"column {key!r} has values that do not fit a signed 64-bit integer")


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return any(
        getattr(types, f"is_{name}")(kind)
        for name in ("string", "binary", "large_string", "large_binary", "fixed_size_binary")
    )


def _by_shard(chunk: Any, shards: Shards, key: str | None) -> Iterator[tuple[VChannelName, Any]]:
    """The rows of each shard in their order; a chunk's rows without a key go to one shard."""
    if key is None or len(shards.vchannels) == 1:
        yield shards.choose(None), chunk
        return
    pc = arrow().compute
    index = shard_indices(chunk.column(key), len(shards.vchannels))
    if index.null_count:
        turn = shards.vchannels.index(shards.choose(None))
        index = index.fill_null(turn)
    # This sort is stable: the rows of a shard keep their order.
    ordered = chunk.take(pc.array_sort_indices(index))
    counts = pc.value_counts(index.sort())
    start = 0
    for shard, rows in zip(
        counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True
    ):
        yield shards.vchannels[shard], ordered.slice(start, rows)
        start += rows


def shard_indices(keys: Any, shards: int) -> Any:
    """`shard_of` each key of an Arrow array; null for null."""
    pa = arrow()
    if _is_text(keys.type):
        texts = keys.dictionary_encode()
        hashes = pa.array([hash_text(each) for each in texts.dictionary.to_pylist()], pa.uint64())
        hashed = hashes.take(texts.indices)
    else:
        hashed = _hash_int64(keys)
    pc = pa.compute
    # Not `modulo`: the oldest Arrow that we support, 18, does not have it.
    return pc.subtract(hashed, pc.multiply(pc.divide(hashed, shards), shards)).cast(pa.int64())


def _hash_int64(keys: Any) -> Any:
    """`hash_int64` over an array: 32-bit arithmetic in unsigned words of 64 bits."""
    pa = arrow()
    pc = pa.compute
    # `view` keeps the bits, so that negative keys hash as in Milvus; a cast would refuse them. The
    # product of two 32-bit words fits 64 bits, and is cut back to 32 after each step.
    wide = keys.cast(pa.int64()).view(pa.uint64())
    state = pa.scalar(0, pa.uint64())
    for word in (_and(wide, _WORD), pc.shift_right(wide, _u64(32))):
        mixed = _times(_rotate(_times(word, 0xCC9E2D51), 15), 0x1B873593)
        state = _rotate(pc.bit_wise_xor(mixed, state), 13)
        state = _and(pc.add(_times(state, 5), _u64(0xE6546B64)), _WORD)
    # Murmur3 ends by mixing in the length of the key, 8 bytes.
    state = pc.bit_wise_xor(state, _u64(8))
    state = _times(pc.bit_wise_xor(state, pc.shift_right(state, _u64(16))), 0x85EBCA6B)
    state = _times(pc.bit_wise_xor(state, pc.shift_right(state, _u64(13))), 0xC2B2AE35)
    return _and(pc.bit_wise_xor(state, pc.shift_right(state, _u64(16))), 0x7FFFFFFF)


@cache
def _u64(number: int) -> Any:
    return arrow().scalar(number, arrow().uint64())


def _and(words: Any, mask: int) -> Any:
    return arrow().compute.bit_wise_and(words, _u64(mask))


def _times(words: Any, factor: int) -> Any:
    return _and(arrow().compute.multiply(words, _u64(factor)), _WORD)


def _rotate(words: Any, bits: int) -> Any:
    pc = arrow().compute
    left = _and(pc.shift_left(words, _u64(bits)), _WORD)
    return pc.bit_wise_or(left, pc.shift_right(words, _u64(32 - bits)))
