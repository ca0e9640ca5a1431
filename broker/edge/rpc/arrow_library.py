"""Arrow's library on a server: loaded when it is first needed, and never by the event loop.

Owns nothing. Loading takes up to a second on a small machine; a loop that did it itself would
answer nobody meanwhile, and a node could lose its lease.
"""

from anyio.to_thread import run_sync

from schemas.arrow.columns import NoArrow, arrow, arrow_is_loaded


async def load_arrow() -> None:
    """Afterwards the library is there; where it is not installed, its users say so themselves."""
    if not arrow_is_loaded():
        await run_sync(_load)


def _load() -> None:
    try:
        arrow()
    except NoArrow:
        pass  # whoever uses it raises the same, where it can be told to the one who asked
