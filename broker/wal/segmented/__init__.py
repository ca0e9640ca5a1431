"""The default log: preallocated segment files, group commit, recovery, fencing by term."""

from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.segmented_wal import SegmentedWal
from broker.wal.segmented.settings import SegmentedSettings

__all__ = ["OsFiles", "SegmentedSettings", "SegmentedWal"]
