"""Where a query starts and where a batch query ends, as its options say.

Here are only the options' forms; the broker says which cut each of them means.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from broker.spark.refusals import BadOption

TICK_LOGICAL_BITS: Final = 18
TICK_MAX: Final = (1 << 63) - 1
"""A tick is a bigint in Spark."""
MS_MAX: Final = TICK_MAX >> TICK_LOGICAL_BITS
STARTS: Final = (
    *("startingOffsets", "startingTick", "startingTimestamp"),
    *("startingCursor", "startingGroup"),
)
FORMS: Final = (
    'use "earliest", "latest", {"id": 5}, {"tick": 5} or {"timestamp": 5}, for each vchannel or'
    " collection"
)
ENDS: Final = ("endingOffsets", "endingTick", "endingTimestamp")


@dataclass(frozen=True, slots=True)
class At:
    """The position behind `tick` and before the next one. `option`, `text`: how it was given.

    `keeps_all`: a query that starts there wants all that follows, and not what is left of it.
    """

    tick: int
    option: str
    text: str
    keeps_all: bool = False


@dataclass(frozen=True, slots=True)
class FromId:
    """The position before the first message of a vchannel with this id or a larger one."""

    message_id: int


Start = Literal["earliest", "latest"] | At | FromId
"""Where one vchannel starts."""


@dataclass(frozen=True, slots=True)
class Each:
    """A start for each vchannel or collection by its name. `text`: how it was given."""

    starts: Mapping[str, Start]
    text: str


@dataclass(frozen=True, slots=True)
class AtCursor:
    """The position of a named cursor."""

    cursor: str


@dataclass(frozen=True, slots=True)
class AtGroup:
    """What a consumer group has acknowledged on each vchannel without a gap."""

    group: str


Bound = Literal["earliest", "latest"] | At | Each | AtCursor | AtGroup
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


def starting(given: Mapping[str, str], *, streaming: bool) -> Bound:
    """Parse the start: `startingTick` is the first tick read, `startingTimestamp` the first
    millisecond.
    """
    option, text = _one_of(STARTS, given)
    if option == "startingTick":
        return At(_tick(option, text) - 1, option, text, keeps_all=True)
    if option == "startingTimestamp":
        return At(_before_millisecond(option, text), option, text)
    if option == "startingCursor":
        if not text:
            raise BadOption(option, text, "give the name of a cursor, or leave the option out")
        return AtCursor(text)
    if option == "startingGroup":
        if not text:
            raise BadOption(option, text, "give the name of a group, or leave the option out")
        return AtGroup(text)
    if text.startswith("{"):
        each = _each(text)
        if LATEST in each.starts.values() and not streaming:
            raise BadOption(option, text, "a batch query cannot start at latest")
        return each
    bound = _word(option, text or (LATEST if streaming else EARLIEST))
    if bound == LATEST and not streaming:
        raise BadOption(option, text, "a batch query cannot start at latest")
    return bound


def ending(given: Mapping[str, str]) -> Bound:
    """Parse the end: `endingTick` is the last tick read, `endingTimestamp` the first moment not
    read.
    """
    option, text = _one_of(ENDS, given)
    if option == "endingTick":
        return At(_tick(option, text), option, text)
    if option == "endingTimestamp":
        return At(_before_millisecond(option, text), option, text)
    if text.startswith("{"):
        advice = "a batch query ends at one tick; use endingTick or endingTimestamp"
        raise BadOption(option, text, advice)
    bound = _word(option, text or LATEST)
    if bound == EARLIEST:
        raise BadOption(option, text, "a batch query cannot end at earliest")
    return bound


def _one_of(options: tuple[str, ...], given: Mapping[str, str]) -> tuple[str, str]:
    found = [name for name in options if name.lower() in given]
    if len(found) > 1:
        raise BadOption(
            found[1], given[found[1].lower()], f"{found[0]} is set, too; use one of them"
        )
    option = found[0] if found else options[0]
    return option, given.get(option.lower(), "").strip()


def _word(option: str, text: str) -> Literal["earliest", "latest"]:
    word = text.lower()
    if word in (EARLIEST, LATEST):
        return EARLIEST if word == EARLIEST else LATEST
    raise BadOption(option, text, "use earliest or latest")


def _each(text: str) -> Each:
    option = STARTS[0]
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadOption(option, text, f"not JSON: {error}") from None
    starts: dict[str, Start] = {}
    for name, start in given.items():
        match start:
            case "earliest" | "latest":
                starts[name] = _word(option, start)
            case {"id": int(number)} if len(start) == 1 and 0 < number <= TICK_MAX:
                starts[name] = FromId(number)
            case {"tick": int(number)} if len(start) == 1:
                starts[name] = At(_tick(option, str(number)) - 1, option, text, keeps_all=True)
            case {"timestamp": int() | str() as moment} if len(start) == 1:
                starts[name] = At(_before_millisecond(option, str(moment)), option, text)
            case _:
                raise BadOption(option, text, f"the start of {name!r} is {start!r}; {FORMS}")
    return Each(starts, text)


def _tick(option: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or not 0 < int(text) <= TICK_MAX:
        raise BadOption(option, text, f"use a time tick, 1 to {TICK_MAX}")
    return int(text)


def _before_millisecond(option: str, text: str) -> int:
    """The last tick before."""
    return max(0, (_milliseconds(option, text) << TICK_LOGICAL_BITS) - 1)


def _milliseconds(option: str, text: str) -> int:
    if re.fullmatch("[0-9]{1,15}", text):
        found = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        # Without a zone, the moment would depend on the machine.
        if moment is None or moment.tzinfo is None:
            advice = "use Unix milliseconds, or a time with its zone, 2026-11-22T03:00:00+00:00"
            raise BadOption(option, text, advice)
        found = round(moment.timestamp() * 1000)
    if not 0 <= found <= MS_MAX:
        raise BadOption(option, text, f"out of range; use 0 to {MS_MAX} milliseconds")
    return found
