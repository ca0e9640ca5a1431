"""A restored log that ends with a rewritten segment, for this release and for earlier ones."""

from pathlib import Path

from broker.backup.restored_heads import end_with_original
from broker.model.ids import MessageId
from broker.wal.inspect import verify
from broker.wal.segmented.segment import HEADER_BYTES, VERSION, SegmentHeader, SegmentName
from tests.broker.wal.test_gaps import CHANNEL, Rewritten


def as_backed_up(log: Rewritten) -> SegmentName:
    """Remove all that follows the newest rewritten segment; its name."""
    names = [it for it in map(SegmentName.of, (it.name for it in log.logs())) if it]
    *_, last = sorted(it for it in names if it != it.original)
    for path in log.folder.iterdir():
        other = SegmentName.of(path.with_suffix(".log").name)
        if other is not None and other.base_id > last.base_id:
            path.unlink()
    return last


def test_an_earlier_release_misses_the_segment_before_and_this_one_reads_on(
    tmp_path: Path,
) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill()
    last = as_backed_up(log)
    end_with_original(tmp_path, CHANNEL)
    originals = [it for it in map(SegmentName.of, (it.name for it in log.logs())) if it]
    head = max(it for it in originals if it == it.original)
    data = (log.folder / head.log_file).read_bytes()
    assert data[8:12] == VERSION.to_bytes(4, "little"), "it can read the header"
    header = SegmentHeader.decode(data, head.log_file)
    assert header.previous is not None
    assert header.previous.name == last.original
    assert not (log.folder / last.original.log_file).exists(), "and finds nothing of this name"
    assert len(data) == HEADER_BYTES
    assert verify(tmp_path).healthy
    found = log.read(9)
    assert list(found) == [it for it in kept if it.base_id < head.base_id]
    assert head.base_id > MessageId(1)


def test_a_log_that_ends_with_an_original_segment_stays_as_it_is(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    before = log.logs()
    end_with_original(tmp_path, CHANNEL)
    (tmp_path / "empty").mkdir()
    end_with_original(tmp_path, "empty")
    assert log.logs() == before
