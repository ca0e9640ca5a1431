"""Why a query cannot run, each with a code that stays: `[TIDEMARK_...]` at the front of its text.

Spark shows a person the text alone, deep in a traceback, so the code is part of it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from broker.client import TidemarkError


class BadOption(ValueError):
    """An option with a value that cannot be used; the message names both and says what would do."""

    def __init__(self, option: str, value: object, mend: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_OPTION] option {option!r} is {value!r}: {mend}")


class BadColumns(ValueError):
    """Columns that Spark has no type for, that are not what the query was made with, or not what
    the target of a sink takes."""

    def __init__(self, found: Iterable[str]) -> None:
        super().__init__(f"[TIDEMARK_BAD_COLUMNS] {'; '.join(found)}")


class BadRow(ValueError):
    """A row that the target of a sink does not take, in columns that it does."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_ROW] column {column!r}: {problem}")


class NotSupported(ValueError):
    """What cannot be done with a log; the text says what to do instead."""

    def __init__(self, what: str) -> None:
        super().__init__(f"[TIDEMARK_NOT_SUPPORTED] {what}")


class BadCheckpoint(RuntimeError):
    """An offset of the checkpoint is none that this query can go on from."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_CHECKPOINT] {cause}")


class BadLimit(ValueError):
    """A limit of a micro-batch that a log cannot keep to."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_LIMIT] {cause}")


class DataLoss(RuntimeError):
    """Messages the query has not seen are gone from the log, or never were in it."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            "[TIDEMARK_DATA_LOSS] "
            + "; ".join(losses)
            + ". Set failOnDataLoss to false to go on with what is there."
        )


class Failed(RuntimeError):
    """What the broker refused, or did not answer: the code is the name of the client's error."""

    def __init__(self, error: TidemarkError) -> None:
        name = re.sub("(?<!^)([A-Z])", r"_\1", type(error).__name__).upper()
        super().__init__(f"[TIDEMARK_{name}] {error}")


@contextmanager
def told_to_spark() -> Iterator[None]:
    """Around all that Spark calls: raises Failed for the client's errors, with their text."""
    try:
        yield
    except TidemarkError as error:
        raise Failed(error) from error
