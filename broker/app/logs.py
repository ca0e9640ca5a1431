"""Configures the log of a process: format and levels, for structlog and the standard library.

Lines of an actor carry its path and term. The log goes to stderr; stdout is for the ready line.
"""

import logging
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from actors import identity

NOISY: Final = ("asyncio",)
"""Libraries of which only warnings and errors are logged, unless they are named."""
CARRIERS: Final = ("aiosqlite",)
"""Libraries that print at level DEBUG what they carry, such as the values of settings: they never
do here, whatever level is asked for. Of hpack the transport keeps it out."""

_LEVELLED: set[str] = set()
"""Loggers with a level of the last configuration, which the next one takes back."""


def configure_logs(
    levels: str, form: str, stream: TextIO | None = None, *, node: int | None = None
) -> None:
    """Set up logging. `levels`: "warning" or "warning,broker.node=debug"; `form`: console or json.

    May be called again; loggers that are not named any more lose their level. `node`: a field of
    every line, for processes that share one stderr.
    """
    stream = stream or sys.stderr
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(form, node, colors=_wants_colors(stream)))
    logging.basicConfig(handlers=[handler], force=True)
    for name in _LEVELLED:
        logging.getLogger(name).setLevel(logging.NOTSET)
    _LEVELLED.clear()
    for name in CARRIERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, level in _levels(levels):
        logging.getLogger(name).setLevel(level)
        _LEVELLED.add(name)
    for name in CARRIERS:
        logger = logging.getLogger(name)
        logger.setLevel(max(logging.INFO, logger.getEffectiveLevel()))
    calls = logging.getLogger("grpclib.server")
    if not any(isinstance(it, LateCalls) for it in calls.filters):
        calls.addFilter(LateCalls())


class LateCalls(logging.Filter):
    """Turns the error of a call whose deadline passed into information: the server did not fail."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop its traceback and lower its level; leave other records alone."""
        if record.exc_info and isinstance(record.exc_info[1], TimeoutError):
            record.msg, record.args = "a call was cancelled because its deadline passed", ()
            record.exc_info, record.exc_text = None, None
            record.levelno, record.levelname = logging.INFO, "INFO"
            # The logger has checked the old level; the new one may be below its own.
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


def _formatter(form: str, node: int | None, *, colors: bool) -> ProcessorFormatter:
    def add_node(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if node is not None:
            event.setdefault("node", node)
        return event

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_identity,
        add_node,
    ]
    last: list[Processor] = [ProcessorFormatter.remove_processors_meta]
    if form == "json":
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Plain tracebacks: pretty ones print local variables, which hold the data of users.
        plain = structlog.dev.plain_traceback
        last += [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    return ProcessorFormatter(processors=[*shared, *last])


def _add_identity(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    who = identity()
    if who is not None:
        event.setdefault("path", who.path)
        event.setdefault("term", who.term)
    return event


def _levels(levels: str) -> list[tuple[str, str]]:
    """Name and level of each logger; "" stands for all others."""
    first, *others = levels.split(",")
    named = [other.partition("=") for other in others]
    return [("", first.upper()), *((name, level.upper()) for name, _, level in named)]


def _wants_colors(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def program_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("tidemark")
    except PackageNotFoundError:  # run from a checkout
        return "0+checkout"
