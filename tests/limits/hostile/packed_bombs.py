"""Bodies that are thousands of times as large when they are unpacked."""

import gzip
from itertools import cycle, repeat
from struct import pack

import lz4.block
import pyarrow as pa
import zstandard

from schemas.arrow.rows import encode_rows
from schemas.batches import ARROW, ScannedBatch, append_request
from schemas.packing import LZ4, ZSTD
from tests.limits.hostile.attack import Got, Target
from tests.limits.hostile.hostile_caller import HostileCall, call_on
from tests.limits.hostile.hostile_requests import COMMIT_CURSOR, HEALTH
from tests.limits.hostile.hostile_streams import append_batches

MIB = 1 << 20
BOMB_BYTES = 256 * MIB
WITHIN_BYTES = 7 * MIB
"""Within the limit of a message: accepted, and expensive for its size."""
ROWS = pa.schema([("text", pa.string()), ("number", pa.int64())])
"""The columns of the collection that is attacked with rows."""


async def gzip_messages(target: Target, got: Got) -> None:
    """Compressed as gRPC allows: 256 MiB of zeros in 256 KiB, and the same twice."""
    once = gzip.compress(bytes(BOMB_BYTES), 6)
    bodies = (once, gzip.compress(once))
    calls = (
        HostileCall(path, iter((pack(">BI", 1, len(body)) + body,)), (("grpc-encoding", coding),))
        for body, (path, coding) in zip(
            cycle(bodies),
            cycle(((HEALTH, "gzip"), (COMMIT_CURSOR, "deflate"), (HEALTH, "snappy"))),
            strict=False,
        )
    )
    await call_on(target, got, calls)


async def packed_batches(target: Target, got: Got) -> None:
    """Batches of LZ4 and Zstandard that unpack to 7 MiB, to more than they say, and to 256 MiB."""
    small, large = bytes(WITHIN_BYTES), bytes(BOMB_BYTES)
    vchannel = f"{target.pchannel}_1v0"
    # Of no declared size, as a stream has it.
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(large)
    bodies = (
        (ZSTD, zstandard.ZstdCompressor().compress(small), WITHIN_BYTES),
        (LZ4, lz4.block.compress(small, store_size=False), WITHIN_BYTES),
        (ZSTD, zstandard.ZstdCompressor().compress(large), WITHIN_BYTES),
        (ZSTD, zstandard.ZstdCompressor().compress(large), BOMB_BYTES),
        (ZSTD, unsized, WITHIN_BYTES),
        (LZ4, lz4.block.compress(large, store_size=False), WITHIN_BYTES),
        (LZ4, lz4.block.compress(large, store_size=False), (1 << 32) - 1),
    )
    requests = [
        append_request(ScannedBatch(vchannel, sizes=(size,), codec=codec), [body])
        for codec, body, size in bodies
    ]
    await append_batches(target, got, cycle(requests))


async def packed_within(target: Target, got: Got) -> None:
    """Only those of 7 MiB, which are accepted; each is less than a KiB."""
    body = zstandard.ZstdCompressor().compress(bytes(WITHIN_BYTES))
    batch = ScannedBatch(f"{target.pchannel}_1v0", sizes=(WITHIN_BYTES,), codec=ZSTD)
    await append_batches(target, got, repeat(append_request(batch, [body])))


async def packed_rows(target: Target, got: Got) -> None:
    """Arrow rows that unpack to 7 MiB, to 256 MiB, and to less than they claim."""
    within, over = _rows(WITHIN_BYTES, "zstd"), _rows(BOMB_BYTES, "zstd")
    bodies = (within, _rows(WITHIN_BYTES, "lz4"), over, _claiming(within), _claiming(over))
    requests = [
        append_request(ScannedBatch(target.rows_vchannel, codec=ARROW), [body]) for body in bodies
    ]
    await append_batches(target, got, cycle(requests))


def _rows(size: int, packing: str) -> bytes:
    text = pa.array([bytes(size // 2).decode(), ""])
    return encode_rows(pa.record_batch([text, pa.array([1, 2])], ROWS), packing)


def _claiming(body: bytes) -> bytes:
    """The body with another uncompressed size in front of its largest buffer."""
    sizes = sorted({WITHIN_BYTES // 2, BOMB_BYTES // 2})
    for size in sizes:
        at = body.find(size.to_bytes(8, "little"))
        if at >= 0:
            return body[:at] + (1000).to_bytes(8, "little") + body[at + 8 :]
    return body
