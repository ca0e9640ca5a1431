"""The sizes a segmented log works with."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class SegmentedSettings:
    """Sizes in bytes of file, header included.

    A log's first segment after opening takes `first_segment_bytes` of disk and each further one
    `growth` times its predecessor's, up to `segment_bytes`: idle channels stay small.
    `skip_damage` lets recovery and reads go on behind damaged records, reporting each.
    """

    segment_bytes: int = 64 * MIB
    first_segment_bytes: int = 1 * MIB
    growth: int = 4
    index_spacing_bytes: int = 64 * KIB
    open_files_max: int = 8
    indexes_max: int = 64
    skip_damage: bool = False


DEFAULTS = SegmentedSettings()
