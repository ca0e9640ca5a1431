"""Sizes of a segmented log."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class SegmentedSettings:
    """Sizes in bytes, headers included.

    The first segment after opening takes `first_segment_bytes` of disk, each further one `growth`
    times as much, none more than `segment_bytes`: idle channels stay small. With `skip_damage`
    recovery and reads continue behind damaged records, reporting each.
    """

    segment_bytes: int = 64 * MIB
    first_segment_bytes: int = 1 * MIB
    growth: int = 4
    index_spacing_bytes: int = 64 * KIB
    open_files_max: int = 8
    indexes_max: int = 64
    skip_damage: bool = False

    @property
    def opening_bytes(self) -> int:
        """The size of the segment that each opening starts."""
        return min(self.first_segment_bytes, self.segment_bytes)


DEFAULTS = SegmentedSettings()
