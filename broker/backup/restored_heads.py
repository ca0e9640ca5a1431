"""Ends a restored log so that a release without editions of segments refuses it.

Such a release does not see the file of a segment that was written anew. A log that ends with one
would look shorter to it, or empty, and it would use the ids again. So an empty segment follows, as
an idle broker leaves it: it names the one before, which such a release misses and reports.
"""

import secrets
from pathlib import Path

from broker.backup.backup_failed import BackupFailed
from broker.backup.durable_files import sync
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.inspect import UntouchedFiles
from broker.wal.segmented.log_opening import LogRecovery, read_header
from broker.wal.segmented.scan import refuse
from broker.wal.segmented.segment import Link, SegmentHeader, SegmentName
from broker.wal.segmented.settings import DEFAULTS


def end_with_original(root: Path, pchannel: str) -> None:
    """Durable when it returns; nothing where the newest segment is no edition.

    Raises BackupFailed and OSError.
    """
    files = UntouchedFiles(root)
    try:
        found = LogRecovery(files, pchannel, DEFAULTS.index_spacing_bytes, refuse).run()
        last = found.sealed[-1] if found.sealed else None
        if last is None or not last.is_rewritten:
            return
        before = read_header(files, f"{pchannel}/{last.name.log_file}", last.name)
    except (Corrupt, UnknownFormat) as error:
        raise BackupFailed(f"the log of {pchannel} does not open: {error}") from error
    head = SegmentHeader(
        channel=before.channel,
        name=SegmentName(last.name.term, found.next_id),
        salt=secrets.randbits(32),
        previous=Link(last.name.original, last.end),
        last_tick=found.last_tick,
        last_term=found.last_term,
    )
    path = root / pchannel / head.name.log_file
    path.write_bytes(head.encode())
    sync(path)
    sync(path.parent)
