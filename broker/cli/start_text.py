"""Places in the log as a command line names them: `all`, `latest`, an ID, `tick:N`, a time."""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NoReturn

from broker.cli.session import USAGE, fail

Place = Literal["all", "latest"] | int | tuple[Literal["tick"], int] | datetime

_AGO = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def place_of(text: str, option: str, *, ids: bool = True) -> Place:
    """The place; a text that names none ends the program, with the option in the message.

    Without `ids` a message ID is not a place, because it belongs to one vchannel.
    """
    if text == "all" or text == "latest":
        return "all" if text == "all" else "latest"
    if ids and text.isdecimal() and int(text) < 1 << 63:
        return int(text)
    word, _, number = text.partition(":")
    if word == "tick" and number.isdecimal() and int(number) < 1 << 63:
        return ("tick", int(number))
    found = _AGO.fullmatch(text)
    if found is not None:
        ago_s = int(found[1]) * _SECONDS[found[2]]
        return _ago(text, option, ago_s)
    try:
        # Only with a date: `fromisoformat` takes a number of eight digits for one, too.
        return datetime.fromisoformat(text) if "-" in text else _refuse(text, option, ids=ids)
    except ValueError:
        _refuse(text, option, ids=ids)


def moment_of(text: str, option: str) -> datetime:
    """A time to come: itself, or a duration from now on; any other text ends the program."""
    found = _AGO.fullmatch(text)
    moment: datetime | None = None
    try:
        if found is not None:
            moment = datetime.now(UTC) + timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        elif "-" in text:
            moment = datetime.fromisoformat(text)
    except (OverflowError, ValueError):
        moment = None
    if moment is None:
        fail(
            f"{option} {text!r} is no time; use one such as 2026-01-02T03:04, or 10m for in ten"
            " minutes",
            USAGE,
        )
    return moment


def _ago(text: str, option: str, ago_s: int) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=ago_s)
    except OverflowError:
        fail(f"{option} {text!r} lies before every calendar; use all", USAGE)


def _refuse(text: str, option: str, *, ids: bool) -> NoReturn:
    id = "a message ID, " if ids else ""
    fail(
        f"{option} {text!r} is no place in the log; use all, latest, {id}tick:N, a time such as"
        " 2026-01-02T03:04, or 10m for ten minutes ago",
        USAGE,
    )
