"""Rows whose collection is gone by the time their schema is looked up."""

import pytest

from broker.edge.tidemark.admission.batch_admission import BatchAdmission
from broker.edge.tidemark.admission.rows_admission import RowsAdmission
from broker.model.batch import Codec
from broker.model.failure import Dropped, Refusal, StreamingCode
from broker.model.ids import PChannelName
from broker.ports.row_schemas import NoRowSchemas, NoShard
from schemas.batches import ScannedBatch

P = PChannelName("by-dev-rootcoord-dml_0")
MIB = 1024 * 1024


class Gone(NoRowSchemas):
    """No collection has a schema; that of each vchannel is as given."""

    def __init__(self, shard: NoShard) -> None:
        self._shard = shard

    async def shard(self, vchannel: str) -> NoShard:
        return self._shard


@pytest.mark.parametrize(
    ("shard", "kind", "cause"),
    [
        (NoShard.DROPPED, Dropped, f"collection 7 of vchannel '{P}_7v0' was dropped; look up"),
        (NoShard.OTHER, Refusal, "collection 7 has no schema; create it with one"),
    ],
)
async def test_rows_without_a_schema_are_told_whether_their_collection_was_dropped(
    shard: NoShard, kind: type[Refusal], cause: str
) -> None:
    batch = ScannedBatch(f"{P}_7v0", body=b"x", codec=Codec.ARROW)
    refusal = await RowsAdmission(Gone(shard), MIB).judge(batch, BatchAdmission(P, MIB))
    assert type(refusal) is kind
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert cause in refusal.cause
