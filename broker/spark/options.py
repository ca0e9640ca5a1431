"""The source's options, checked before anything is read.

Never talks to a broker. Next: broker/spark/offsets.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

EARLIEST = -2
LATEST = -1
DEFAULT_SERVER = "127.0.0.1:19531"
KNOWN = frozenset(
    {
        "server",
        "cluster",
        "subscribe",
        "startingoffsets",
        "endingoffsets",
        "maxrowspertrigger",
        "maxbytespertrigger",
        "failondataloss",
        "includeproperties",
    }
)
SPARK_OWN = frozenset({"path", "checkpointlocation"})

Bound = int | Mapping[str, Mapping[str, int]]
"""EARLIEST, LATEST, or for each subscribed name: shard index or vchannel name -> message id."""


class BadOption(ValueError):
    """An option with a value that cannot be used; the message names both and says what would do."""

    def __init__(self, option: str, value: object, mend: str) -> None:
        super().__init__(f"[TIDEMARK_BAD_OPTION] option {option!r} is {value!r}: {mend}")


@dataclass(frozen=True, slots=True)
class Options:
    """`subscribe` holds collection or vchannel names; limits are None when there is none."""

    server: str
    cluster: str
    subscribe: tuple[str, ...]
    starting: Bound
    ending: Bound
    rows_max: int | None
    bytes_max: int | None
    fail_on_data_loss: bool
    include_properties: bool


def parse(options: Mapping[str, str], *, streaming: bool) -> Options:
    """Options as Spark hands them over: string values, names in any case. Raises BadOption.

    As with Kafka's source a stream starts at `latest` unless told otherwise, a batch at `earliest`.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - KNOWN - SPARK_OWN:
        raise BadOption(name, given[name], f"unknown; there are {', '.join(sorted(KNOWN))}")
    if streaming and "endingoffsets" in given:
        raise BadOption("endingOffsets", given["endingoffsets"], "only a batch query has an end")
    return Options(
        server=given.get("server", DEFAULT_SERVER),
        cluster=given.get("cluster", "by-dev"),
        subscribe=_names(given.get("subscribe", given.get("path", ""))),
        starting=_starting(given, streaming=streaming),
        ending=_ending(given),
        rows_max=_limit(given, "maxRowsPerTrigger"),
        bytes_max=_limit(given, "maxBytesPerTrigger"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        include_properties=_flag(given, "includeProperties", default=True),
    )


def parse_either(options: Mapping[str, str]) -> Options:
    """Options that suit a batch or a stream, when it is not known yet which; else BadOption."""
    try:
        return parse(options, streaming=True)
    except BadOption:
        return parse(options, streaming=False)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOption("subscribe", text, "name one or more collections or vchannels, a,b,c")
    if len(set(names)) != len(names):
        raise BadOption("subscribe", text, "each name may stand there once")
    return names


def _starting(given: Mapping[str, str], *, streaming: bool) -> Bound:
    bound = _bound(given, "startingOffsets", LATEST if streaming else EARLIEST)
    if not streaming and _mentions(bound, LATEST):
        raise BadOption(
            "startingOffsets", given["startingoffsets"], "a batch query cannot start at latest"
        )
    return bound


def _ending(given: Mapping[str, str]) -> Bound:
    bound = _bound(given, "endingOffsets", LATEST)
    if _mentions(bound, EARLIEST):
        raise BadOption(
            "endingOffsets", given["endingoffsets"], "a batch query cannot end at earliest"
        )
    return bound


def _mentions(bound: Bound, wanted: int) -> bool:
    if isinstance(bound, int):
        return bound == wanted
    return any(wanted in shards.values() for shards in bound.values())


def _bound(given: Mapping[str, str], option: str, default: int) -> Bound:
    text = given.get(option.lower())
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    mend = 'use earliest, latest, or JSON such as {"flights": {"0": 23, "1": -1}}'
    try:
        parsed = json.loads(text)
    except ValueError:
        raise BadOption(option, text, mend) from None
    if not _is_bound(parsed):
        raise BadOption(option, text, mend)
    return {name: dict(shards) for name, shards in parsed.items()}


def _is_bound(parsed: object) -> bool:
    return isinstance(parsed, dict) and all(
        isinstance(shards, dict)
        and all(type(value) is int and value >= EARLIEST for value in shards.values())
        for shards in parsed.values()
    )


def _limit(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise BadOption(option, text, "use a whole number above 0")
    return int(text)


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadOption(option, text, "use true or false")
    return text == "true"
