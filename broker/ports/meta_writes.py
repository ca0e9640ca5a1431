"""The limits of the metadata store: checked by its drivers, kept to by those who write and list."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Final

from broker.ports.meta import (
    LIST_MAX,
    WRITE_BYTES_MAX,
    WRITE_KEYS_MAX,
    MetaEntry,
    MetaError,
    MetaStore,
    WriteTooLarge,
)

SPLIT_KEYS: Final = 90
SPLIT_BYTES: Final = WRITE_BYTES_MAX - 64 * 1024
"""Of one part of a split write: below the limits, because callers add a record, and fences."""

VALUE_BYTES_MAX: Final = SPLIT_BYTES
"""A larger value must not reach the store: refuse it where it enters, or store it in parts."""

PART_BYTES: Final = 512 * 1024
PAGE: Final = 100
"""Entries that `all_entries` reads at once: a page of the largest values takes 100 MiB."""


def check_write(
    puts: Mapping[str, bytes], deletes: Collection[str], expect: Mapping[str, int]
) -> None:
    """Raise WriteTooLarge for a write above the limits."""
    keys = {*puts, *deletes, *expect}
    size = sum(map(len, puts.values())) + sum([_key_bytes(key) for key in keys])
    if len(keys) > WRITE_KEYS_MAX or size > WRITE_BYTES_MAX:
        raise WriteTooLarge(len(keys), size)


def check_list(limit: int) -> None:
    """Raise MetaError for a list without a limit, or with one that is too large."""
    if not 1 <= limit <= LIST_MAX:
        raise MetaError(f"a list of {limit} entries; the limit must be 1 to {LIST_MAX}")


def split_write(
    puts: Mapping[str, bytes], deletes: Sequence[str] = (), *, keys_max: int = SPLIT_KEYS
) -> Iterator[tuple[dict[str, bytes], list[str]]]:
    """Cut puts, then deletes, into writes that leave room for a few keys and 64 KiB more.

    In order; nothing for nothing. What a crash between two of them leaves is the caller's concern.
    A value above VALUE_BYTES_MAX gets a write of its own.
    """
    some: dict[str, bytes] = {}
    gone: list[str] = []
    size = 0
    for key, value in [*puts.items(), *[(key, None) for key in deletes]]:
        more = _key_bytes(key) + len(value or b"")
        if len(some) + len(gone) == keys_max or (size and size + more > SPLIT_BYTES):
            yield some, gone
            some, gone, size = {}, [], 0
        size += more
        if value is None:
            gone.append(key)
        else:
            some[key] = value
    if some or gone:
        yield some, gone


def in_parts(value: bytes) -> list[bytes]:
    """Cut a value into parts of which each fits one write."""
    return [value[start : start + PART_BYTES] for start in range(0, len(value), PART_BYTES)]


async def all_entries(
    store: MetaStore, prefix: str, *, page: int = PAGE
) -> AsyncIterator[tuple[str, MetaEntry]]:
    """All entries with this prefix in key order, read page by page. MetaError.

    Each page is consistent, all together only if nobody else writes them meanwhile.
    """
    after = ""
    while True:
        found = await store.list(prefix, limit=page, after=after)
        for item in found:
            yield item
        if len(found) < page:
            return
        after = found[-1][0]


def _key_bytes(key: str) -> int:
    # Surrogates have no form in UTF-8; the driver refuses them with a better error.
    return len(key.encode(errors="surrogatepass"))
