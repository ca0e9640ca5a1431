"""Import Arrow's library in a thread when it is first needed, so that the event loop keeps running.

The import takes up to a second on a small machine. On the loop it would block every call, and a
node could lose its lease.
"""

from anyio.to_thread import run_sync

from broker.model.failure import Refused, StreamingCode
from schemas.arrow.columns import NoArrow, arrow, arrow_is_loaded


async def require_arrow() -> None:
    """As `load_arrow`, but raises Refused(UNRECOVERABLE) where it is not installed."""
    await load_arrow()
    if not arrow_is_loaded():
        cause = (
            "the broker has no pyarrow, which it needs for rows; install it where the broker runs"
            " (pip install '.[arrow]' in Tidemark's folder) and restart the broker"
        )
        raise Refused(StreamingCode.UNRECOVERABLE, cause)


async def load_arrow() -> None:
    """Import pyarrow unless it is imported; does nothing where it is not installed."""
    if not arrow_is_loaded():
        await run_sync(_load)


def _load() -> None:
    try:
        arrow()
    except NoArrow:
        pass  # the first use raises it again, where a call can be refused with it
