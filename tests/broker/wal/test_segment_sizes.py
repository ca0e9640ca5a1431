"""How large segment files become, from the first one on."""

from pathlib import Path

import pytest

from broker.model.ids import PChannelName, Term
from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.segmented_wal import SegmentedWal
from broker.wal.segmented.settings import SegmentedSettings
from tests.broker.wal.some_records import record

CHANNEL = PChannelName("c")


@pytest.mark.parametrize("segment_bytes", [16 << 10, 256 << 10, 4 << 20])
def test_no_segment_is_larger_than_asked_not_even_the_first(
    tmp_path: Path, segment_bytes: int
) -> None:
    wal = SegmentedWal(OsFiles(tmp_path), SegmentedSettings(segment_bytes=segment_bytes))
    opened = wal.open_now(CHANNEL, Term(1))
    for base_id in range(1, 41):
        opened.writer.append([record(base_id, size=4000)])
        sizes = [it.stat().st_size for it in (tmp_path / CHANNEL).glob("*.log")]
        assert max(sizes) <= segment_bytes
    if segment_bytes == 16 << 10:
        assert opened.writer.statistics.segments_started > 10
    opened.writer.close()
