"""Records of commits: those of another version are told, and an empty store has none."""

import json
from dataclasses import replace

import pytest

from broker.coordinator.commit.commit_records import (
    CommitRecords,
    RecordedApp,
    decode_app,
    encode_app,
)
from broker.core.txn.batch_commit import TXNS_MAX, AppRecord, aborted, started
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import TxnId, VChannelName
from broker.model.stage import BatchCommit, StagedTxn
from broker.ports.meta import MetaError, WriteTooLarge
from broker.ports.meta_writes import VALUE_BYTES_MAX


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version":2}', b'{"version":1,"app":3}'])
def test_a_record_that_cannot_be_read_is_told(value: bytes) -> None:
    with pytest.raises(MetaError, match="k: "):
        decode_app("k", value)


async def test_what_is_recorded_is_read_back() -> None:
    store = MemoryMetaStore()
    records = CommitRecords(store)
    assert await records.read("job") is None
    assert await records.load() == []


def attempted(name: str, txns: int) -> AppRecord:
    staged = tuple(
        StagedTxn(VChannelName(name.format(it % 1024)), TxnId((1 << 62) + it), it, 1 << 20)
        for it in range(txns)
    )
    return started(AppRecord("job"), BatchCommit("job", 1 << 40, staged), 1 << 62)


async def test_the_largest_commit_fits_the_store_to_its_end() -> None:
    records = CommitRecords(MemoryMetaStore())
    known = attempted("by-dev-rootcoord-dml_{}_454353462363v0", TXNS_MAX)
    recorded = await records.begin(RecordedApp(AppRecord("job")), known)
    assert await records.read("job") == recorded
    assert known.attempt is not None
    ended = replace(known, attempt=aborted(known.attempt, "\U0001f30a" * 100_000))
    await records.save(recorded, ended)


async def test_a_commit_whose_record_could_outgrow_the_store_is_refused_before_it_begins() -> None:
    store = MemoryMetaStore()
    known = attempted("by-dev-rootcoord-dml_{}_" + "1" * 900 + "v0", TXNS_MAX)
    with pytest.raises(WriteTooLarge) as caught:
        await CommitRecords(store).begin(RecordedApp(AppRecord("job")), known)
    assert caught.value.size > VALUE_BYTES_MAX
    assert await store.list("", limit=1) == []


def test_a_record_of_an_earlier_release_has_each_name_with_its_transaction() -> None:
    known = attempted("p_{}_1v0", 3)
    fields = json.loads(encode_app(known))
    names = fields["attempt"].pop("vchannels")
    fields["attempt"]["txns"] = [[names[it[0]], *it[1:]] for it in fields["attempt"]["txns"]]
    assert decode_app("k", json.dumps(fields).encode()) == known


async def test_thousands_of_apps_are_forgotten_in_writes_that_fit() -> None:
    store = MemoryMetaStore()
    records = CommitRecords(store)
    apps = [
        await records.save(RecordedApp(AppRecord(f"{number}")), AppRecord(f"{number}"))
        for number in range(300)
    ]
    await records.forget(apps[:250])
    assert sorted([it.known.app for it in await records.load()]) == [
        str(it) for it in range(250, 300)
    ]
