"""Removes what a log folder holds, so that a crash on the way leaves a log that can be opened."""

from collections.abc import Sequence
from contextlib import suppress

from broker.ports.files import Files
from broker.wal.segmented.claims import Claim
from broker.wal.segmented.segment import SegmentName


def remove_messages(files: Files, folder: str, claim: Claim) -> None:
    """Remove all files but the claim, the newest segment first: the older ones stay a chain.

    Raises Fenced, with nothing removed, when there is a newer owner.
    """
    names = [it for it in files.list(folder) if it != claim.file_name]
    # Behind the list: a newer owner has begun none of these.
    claim.check()
    for name in _newest_first(names):
        files.remove(f"{folder}/{name.log_file}")
        # Each: a power cut must not bring back a segment without the one before it.
        files.sync_folder(folder)
    for other in names:
        if SegmentName.of(other) is None:
            with suppress(FileNotFoundError):
                files.remove(f"{folder}/{other}")
    files.sync_folder(folder)


def remove_log(files: Files, folder: str, claim: Claim) -> None:
    """Remove the folder; the claim goes last. After an OSError it may be tried again."""
    remove_messages(files, folder, claim)
    files.remove(f"{folder}/{claim.file_name}")
    files.remove_folder(folder)


def _newest_first(names: Sequence[str]) -> list[SegmentName]:
    found = (SegmentName.of(it) for it in names)
    return sorted((it for it in found if it is not None), reverse=True)
