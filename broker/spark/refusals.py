"""The errors of a query. Each text begins with a stable code, `[TIDEMARK_...]`.

Spark shows only the text, deep in a traceback, so the code is part of it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from broker.client import TidemarkError

SECRET_NAME: Final = re.compile("secret|password|token|access.?key|credential", re.IGNORECASE)
SECRET_VALUE: Final = re.compile("tm_|eyJ")
"""How tokens begin: ours, and JWTs."""
NO_SECRETS: Final = ("tokenfile", "tidemark_token_file")
HIDDEN: Final = "(not shown)"


class BadOption(ValueError):
    """An option has an unusable value; the text names both and says what to use instead.

    What may be a secret is not shown: errors stand in logs.
    """

    def __init__(self, option: str, value: object, advice: str) -> None:
        shown = HIDDEN if _is_secret(option, value) else repr(value)
        super().__init__(f"[TIDEMARK_BAD_OPTION] option {option!r} is {shown}: {advice}")


def _is_secret(option: str, value: object) -> bool:
    if SECRET_VALUE.match(str(value).strip()):
        return True
    named = option.lower() not in NO_SECRETS and SECRET_NAME.search(option)
    return bool(value) and bool(named)


class BadColumns(ValueError):
    """Columns do not fit.

    Spark has no type for them, the query declared others, or the target of a sink takes others.
    """

    def __init__(self, found: Iterable[str]) -> None:
        super().__init__(f"[TIDEMARK_BAD_COLUMNS] {'; '.join(found)}")


class BadRow(ValueError):
    """A row has a value that the target of a sink does not take."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_ROW] column {column!r}: {problem}")


class NotSupported(ValueError):
    """An operation that a log does not have; the text says what to use instead."""

    def __init__(self, what: str) -> None:
        super().__init__(f"[TIDEMARK_NOT_SUPPORTED] {what}")


class BadCheckpoint(RuntimeError):
    """The checkpoint holds an offset from which this query cannot continue."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_CHECKPOINT] {cause}")


class BadLimit(ValueError):
    """A limit of a micro-batch that this source does not support."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_LIMIT] {cause}")


class DataLoss(RuntimeError):
    """Messages that the query has not read were removed from the log, or never were in it."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            "[TIDEMARK_DATA_LOSS] "
            + "; ".join(losses)
            + ". Set failOnDataLoss to false to continue with what is left."
        )


class Failed(RuntimeError):
    """The broker refused or did not answer; the code is the name of the client's error."""

    def __init__(self, error: TidemarkError) -> None:
        name = re.sub("(?<!^)([A-Z])", r"_\1", type(error).__name__).upper()
        super().__init__(f"[TIDEMARK_{name}] {error}")


@contextmanager
def told_to_spark() -> Iterator[None]:
    """Raise Failed for errors of the client, with their text. Wraps every call from Spark."""
    try:
        yield
    except TidemarkError as error:
        raise Failed(error) from error
