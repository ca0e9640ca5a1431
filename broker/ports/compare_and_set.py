"""Retry for a read-modify-write of the metadata store that loses its compare-and-set."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.ports.meta import Conflict, MetaError

ATTEMPTS_MAX = 8
"""Most records have one writer, so that conflicts come from a restart or a second process."""

T = TypeVar("T")


async def retry_conflicts(
    what: str, attempt: Callable[[], Awaitable[T]], *, attempts_max: int = ATTEMPTS_MAX
) -> T:
    """The result of the first `attempt` that raises no Conflict.

    An attempt reads the current records, computes the new ones, and writes with the revisions it
    has read. `what` names the record in the error. Raises MetaError after `attempts_max` conflicts,
    and whatever else an attempt raises at once.
    """
    for _ in range(attempts_max):
        try:
            return await attempt()
        except Conflict:
            # Whoever won has made progress, so read again without a pause.
            continue
    raise MetaError(f"{what}: lost {attempts_max} races with other writers; try again")
