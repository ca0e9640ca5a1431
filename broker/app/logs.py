"""Where a process writes its log, and which version it says it is. Owns no log line."""

import logging
import sys
from importlib.metadata import PackageNotFoundError, version

import structlog


def configure_logs(level: str) -> None:
    """Everything to stderr: stdout is for the ready line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(
        level=number, stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    logging.getLogger("aiosqlite").setLevel(max(number, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            # Plain tracebacks: the pretty ones print locals, and those hold what people send.
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def program_version() -> str:
    """Of the installed distribution."""
    try:
        return version("tidemark")
    except PackageNotFoundError:  # run from a checkout
        return "0+checkout"
