"""Keeps headers out of every log: at level DEBUG hpack prints each one, tokens too, as they are."""

import logging
from typing import Final

LOGGERS: Final = ("hpack.hpack", "hpack.table")
"""Those of hpack that print what headers hold."""


class WithoutHeaders(logging.Filter):
    """Drops what hpack says at level DEBUG: of a connection's headers nothing else is said."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may be seen."""
        return record.levelno > logging.DEBUG


def keep_headers_out() -> None:
    """Of the logs of this process, whatever levels it sets, now or later; idempotent."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        # On the loggers themselves: the filters of a parent do not see the records of its children.
        if not any(isinstance(it, WithoutHeaders) for it in logger.filters):
            logger.addFilter(WithoutHeaders())
