"""What a process that leads already reads at its start, through outages of the metadata store.

It may have stood by for days, and nobody is there to start it again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import structlog

from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import LastingFailure, MetaError

RETRY_S = 0.5

T = TypeVar("T")
log = structlog.get_logger("tidemark")


async def through_outages(call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; it is called again while the store does not answer or takes no writes.

    Raises LastingFailure, also where it is the cause of a Refused, and each Refused but INNER.
    """
    reported = False
    while True:
        try:
            return await call()
        except (MetaError, Refused) as error:
            if _lasts(error):
                raise
            if not reported:  # once: it may wait for hours
                log.warning("waiting for the metadata store", error=str(error))
            reported = True
        await anyio.sleep(RETRY_S)


def _lasts(error: MetaError | Refused) -> bool:
    if isinstance(error, Refused) and error.refusal.code is not StreamingCode.INNER:
        return True
    return any(isinstance(it, LastingFailure) for it in (error, error.__cause__))
