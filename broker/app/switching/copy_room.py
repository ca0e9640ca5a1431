"""Looks whether the disk has room for more of a copy: what is left is for what serves."""

from collections.abc import Callable
from pathlib import Path

from broker.core.cluster.wal_alter import SEGMENTED
from broker.data_folder import DataFolder
from broker.ports.space.disk_room import DiskSpace
from broker.process_settings import Settings
from broker.wal.disk_reserve import OF_DISK, disk_space

SEGMENTS = 2
"""So many may be allocated between two looks: the next one, and the one behind it."""


def why_no_room(
    settings: Settings,
    folder: DataFolder,
    place: str,
    space: Callable[[Path], DiskSpace] = disk_space,
) -> str:
    """Why nothing may be copied to a place now; empty: it may. Blocks its thread."""
    if place != SEGMENTED:
        return ""
    try:
        found = space(folder.root)
    except OSError as error:
        return f"the disk of {folder.root} cannot be asked for its room: {error}"
    # Above what the reserve takes and refuses at: a copy must not stop the appends to the log.
    kept = min(settings.reserve_bytes, found.total // OF_DISK) + SEGMENTS * settings.segment_bytes
    if found.free >= kept:
        return ""
    # Without what is free: the text is stored anew where it changes.
    return (
        f"the disk of {folder.root} has less than {kept} bytes free, which a copy of the log"
        " leaves: make room, and the copy goes on by itself; while the switch is in stage copying,"
        " `tidemark wal abort` removes the copy"
    )
