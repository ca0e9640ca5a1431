"""`--config`, `--profile` and `--token-file`, which stand before the command or behind it."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPTIONS: Final = ("--config", "--profile", "--token-file")


def first(arguments: Sequence[str]) -> list[str]:
    """The arguments with the global options moved to the front, up to a `--`."""
    moved: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for each in left:
        if each == "--":
            return [*moved, *rest, each, *left]
        if each in OPTIONS:
            # Without a value behind it the parser says what is missing.
            moved += [each, *[value for value in [next(left, None)] if value is not None]]
        elif each.startswith(tuple(f"{it}=" for it in OPTIONS)):
            moved.append(each)
        else:
            rest.append(each)
    return [*moved, *rest]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The global options; None: not given."""

    profile: str | None = None
    config: Path | None = None
    token_file: Path | None = None


NOTHING: Final = Chosen()
_CHOSEN: ContextVar[Chosen] = ContextVar("chosen", default=NOTHING)


def choose(profile: str | None, config: Path | None, token_file: Path | None = None) -> None:
    """Remember what was given, for the command that runs."""
    _CHOSEN.set(Chosen(profile, config, token_file))


def chosen() -> Chosen:
    """What was given before or behind the command."""
    return _CHOSEN.get()
