"""Import Arrow's library in a thread when it is first needed, so that the event loop keeps running.

The import takes up to a second on a small machine. On the loop it would block every call, and a
node could lose its lease.
"""

from anyio.to_thread import run_sync

from schemas.arrow.columns import NoArrow, arrow, arrow_is_loaded


async def load_arrow() -> None:
    """Import pyarrow unless it is imported; does nothing where it is not installed."""
    if not arrow_is_loaded():
        await run_sync(_load)


def _load() -> None:
    try:
        arrow()
    except NoArrow:
        pass  # the first use raises it again, where a call can be refused with it
