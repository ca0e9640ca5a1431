"""Records of commits: those of another version are told, and an empty store has none."""

import pytest

from broker.coordinator.commit.commit_records import CommitRecords, decode_app
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import MetaError


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version":2}', b'{"version":1,"app":3}'])
def test_a_record_that_cannot_be_read_is_told(value: bytes) -> None:
    with pytest.raises(MetaError, match="k: "):
        decode_app("k", value)


async def test_what_is_recorded_is_read_back() -> None:
    store = MemoryMetaStore()
    records = CommitRecords(store)
    assert await records.read("job") is None
    assert await records.load() == []
