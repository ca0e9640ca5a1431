"""Chooses the bucket of each message and row of a pack; bucket i is the i-th channel to produce to.

The default rules of early Milvus: an Insert or Delete is split by rows, everything else goes whole
to the bucket of its only hash key.
"""

from collections.abc import Mapping, Sequence


class BadRepack(ValueError):
    """A pack cannot be spread over the channels; nothing of it was sent."""


def buckets_of(hash_keys: Sequence[Sequence[int]], channels: int) -> list[list[int]]:
    """The bucket of each hash key of each message: the key modulo the number of channels."""
    return [[key % channels for key in keys] for keys in hash_keys]


def only_bucket(index: int, kind: str, buckets: Sequence[int]) -> int:
    """The bucket of a message that goes whole. BadRepack unless it has exactly one."""
    if len(buckets) != 1:
        raise BadRepack(
            f"message {index} ({kind}) has {len(buckets)} hash keys; one that goes whole needs"
            " exactly 1: set hash_keys, or a repack function of your own"
        )
    return buckets[0]


def rows_by_bucket(
    index: int, kind: str, buckets: Sequence[int], lengths: Mapping[str, int]
) -> dict[int, list[int]]:
    """The rows of a message for each bucket, in their order.

    BadRepack unless there is one hash key for each row, and every column has as many entries.
    """
    if any(length != len(buckets) for length in lengths.values()):
        shown = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise BadRepack(
            f"message {index} ({kind}) has {len(buckets)} hash keys, but {shown}; a row needs one"
            " of each"
        )
    rows: dict[int, list[int]] = {}
    for row, bucket in enumerate(buckets):
        rows.setdefault(bucket, []).append(row)
    return rows


def check_buckets(buckets: Sequence[int], channels: int) -> None:
    """Raise BadRepack for a bucket without a channel, as a repack function may name."""
    unknown = sorted({it for it in buckets if not 0 <= it < channels})
    if unknown:
        raise BadRepack(
            f"the repack function named bucket {unknown[0]}; there are {channels} channels, so"
            f" buckets are 0 to {channels - 1}"
        )
