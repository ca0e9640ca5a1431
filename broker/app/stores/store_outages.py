"""What a process that leads already reads at its start, through outages of the metadata store.

It may have stood by for days, and nobody is there to start it again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import structlog

from broker.coordinator.json_records import UnreadableRecord
from broker.coordinator.leases.leadership import Deposed
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError

RETRY_S = 0.5

T = TypeVar("T")
log = structlog.get_logger("tidemark")


async def through_outages(call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; it is called again while the store does not answer or takes no writes.

    Raises what no time mends: Deposed, UnreadableRecord, and each Refused but INNER.
    """
    reported = False
    while True:
        try:
            return await call()
        except (Deposed, UnreadableRecord):
            raise
        except (MetaError, Refused) as error:
            if isinstance(error, Refused) and error.refusal.code is not StreamingCode.INNER:
                raise
            if not reported:  # once: it may wait for hours
                log.warning("waiting for the metadata to take writes", error=str(error))
            reported = True
        await anyio.sleep(RETRY_S)
