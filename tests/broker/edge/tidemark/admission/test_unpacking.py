"""Bodies that are large inside are checked in a thread, however small they came."""

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from broker.edge.tidemark.admission.batch_admission import BatchAdmission
from broker.edge.tidemark.admission.rows_admission import RowsAdmission
from broker.edge.tidemark.admission.unpacking import ON_THE_LOOP_BYTES_MAX, Unpacking
from broker.model.batch import Codec, NewBatch
from broker.model.collection import RowSchema
from broker.model.failure import Refusal
from broker.model.ids import CollectionId, PChannelName
from broker.ports.row_schemas import NoRowSchemas
from schemas.arrow.columns import encode_schema
from schemas.arrow.rows import encode_rows
from schemas.batches import ScannedBatch

P = PChannelName("by-dev-rootcoord-dml_0")
MIB = 1024 * 1024
LARGE = 4 * MIB


class Watched(Unpacking):
    """Tells which threads checked something."""

    def __init__(self) -> None:
        super().__init__()
        self.in_threads: list[bool] = []

    async def run(self, size: int, check: Callable[..., Any], *given: Any) -> Any:  # type: ignore[override]
        def watched(*them: Any) -> Any:
            self.in_threads.append(threading.current_thread() is not threading.main_thread())
            return check(*them)

        return await super().run(size, watched, *given)


def packed(size: int, said: int | None = None) -> ScannedBatch:
    body = zstandard.ZstdCompressor().compress(bytes(size))
    return ScannedBatch(f"{P}_1v0", sizes=(said or size,), codec=Codec.ZSTD, body=body)


@pytest.mark.parametrize(
    ("size", "in_thread"), [(ON_THE_LOOP_BYTES_MAX, False), (ON_THE_LOOP_BYTES_MAX + 1, True)]
)
async def test_a_batch_is_unpacked_in_a_thread_when_it_is_large_inside(
    size: int, in_thread: bool
) -> None:
    unpacking = Watched()
    admission = BatchAdmission(P, 8 * MIB, unpacking=unpacking)
    batch = packed(size)
    assert len(batch.body) < 200
    assert isinstance(await admission.judge_packed(batch), NewBatch)
    assert unpacking.in_threads == [in_thread]


@pytest.mark.parametrize("said", [LARGE - 1, 9 * MIB])
async def test_a_batch_that_lies_about_its_size_is_refused(said: int) -> None:
    verdict = await BatchAdmission(P, 8 * MIB).judge_packed(packed(LARGE, said))
    assert isinstance(verdict, Refusal)


class Typed(NoRowSchemas):
    """Every collection has the columns of the rows below."""

    SCHEMA = pa.schema([("text", pa.string())])

    async def newest(self, collection: CollectionId) -> RowSchema:
        return RowSchema(encode_schema(self.SCHEMA), (1,))


@pytest.mark.parametrize(("size", "in_thread"), [(1000, False), (LARGE, True)])
async def test_rows_are_checked_in_a_thread_when_they_are_large_inside(
    size: int, in_thread: bool
) -> None:
    unpacking = Watched()
    rows = pa.record_batch([pa.array(["x" * size])], Typed.SCHEMA)
    body = encode_rows(rows, "zstd")
    assert len(body) < 2000
    admission = RowsAdmission(Typed(), 8 * MIB, unpacking)
    batch = ScannedBatch(f"{P}_7v0", body=body, codec=Codec.ARROW)
    assert isinstance(await admission.judge(batch, BatchAdmission(P, 8 * MIB)), NewBatch)
    assert unpacking.in_threads == [in_thread]
