"""The source's options, checked before anything is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from broker.spark.option_names import refuse_unknown
from broker.spark.refusals import BadOption
from broker.spark.server_options import SERVER_OPTIONS, Server, server_of
from broker.spark.source.bounds import Bound, ending, starting
from broker.spark.table_options import WITHOUT_OPTIONS

OPTIONS: Mapping[str, tuple[str, str]] = {
    **SERVER_OPTIONS,
    "subscribe": (
        "required",
        ("`a,b,c`: collections and vchannels, all with the same columns, or all without a schema"),
    ),
    "subscribePattern": (
        "none",
        (
            "instead: a regular expression; collections whose whole name matches are read, those "
            "made later from their beginning"
        ),
    ),
    "columns": ("all", "columns to read; the broker sends no others of a collection with a schema"),
    "includeProperties": ("true", "`false` drops the column `properties`, which reads faster"),
    "startingOffsets": (
        "stream: `latest`; batch: `earliest`",
        (
            '`earliest`, `latest`, or JSON with a start for each vchannel or collection: `{"NAME": '
            '"earliest"}`, `"latest"`, `{"id": 5}`, `{"tick": 5}` or `{"timestamp": 5}`'
        ),
    ),
    "startingTick": (
        "",
        "instead: the first time tick to read; a data loss when retention has passed it",
    ),
    "startingTimestamp": (
        "",
        "instead: the first moment to read, in Unix milliseconds or ISO 8601 with a zone",
    ),
    "startingCursor": (
        "",
        "instead: a named cursor; the first message behind it on each vchannel",
    ),
    "startingGroup": (
        "",
        "instead: a consumer group; the first message of each vchannel that it did not acknowledge",
    ),
    "endingOffsets": ("`latest`", "batch only: `latest`"),
    "endingTick": ("", "batch only, instead: the last time tick to read"),
    "endingTimestamp": ("", "batch only, instead: the first moment not to read"),
    "maxRowsPerTrigger": ("no limit", "rows in a micro-batch; a single tick may exceed it"),
    "maxBytesPerTrigger": (
        "no limit",
        "stored bytes in a micro-batch; a single tick may exceed it",
    ),
    "minRowsPerTrigger": ("none", "stream only: wait for this many rows before a micro-batch"),
    "maxTriggerDelay": ("15m", "stream only: the longest wait for `minRowsPerTrigger`"),
    "minPartitions": (
        "1",
        "tasks of a micro-batch, at least; by default one per vchannel, more above 64 MiB",
    ),
    "cursor": ("none", "stream only: the named cursor that the query moves as it commits batches"),
    "failOnDataLoss": (
        "true",
        "`false`: when retention removed unread data, log a warning and continue with the rest",
    ),
}
"""Each option with its default and its meaning, for people."""
NAMES = tuple(OPTIONS)
# Spark adds these to the options of `load(path)` and of a stream.
SPARK_OWN = frozenset({"path", "checkpointlocation"})
OF_THE_SINK = ("topic", "key", "partition", "appId", "batchId", "timeout", "ttl")
"""Options of the sink alone; a table has them for INSERT INTO."""
OF_A_BATCH = ("endingOffsets", "endingTick", "endingTimestamp")
OF_A_STREAM = ("minRowsPerTrigger", "maxTriggerDelay", "cursor")
TRIGGER_DELAY = "15m"
PARTITIONS_MAX = 10_000
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Given = Mapping[str, str]
"""Options by their names in lower case."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options. A limit of 0 is no limit.

    `subscribe`: names of collections or vchannels; empty with a `pattern`, which whole names of
    collections match. `columns`: the columns to return, None for all.
    `cursor`: the named cursor to move, "" for none. `trigger_delay_s`: how long `rows_min` may
    delay a micro-batch.
    """

    server: Server
    subscribe: tuple[str, ...]
    pattern: str
    columns: tuple[str, ...] | None
    include_properties: bool
    starting: Bound
    ending: Bound
    rows_max: int
    bytes_max: int
    rows_min: int
    trigger_delay_s: float
    partitions_min: int
    cursor: str
    fail_on_data_loss: bool


def parse(options: Mapping[str, str], *, streaming: bool, of_table: bool = False) -> Options:
    """Parse options as Spark passes them: strings, names in any case. Raises BadOption.

    As with Kafka's source, a stream starts at `latest` by default and a batch at `earliest`. The
    options of a table may hold some of the sink, which are left out.
    """
    given = {name.lower(): value for name, value in options.items()}
    if of_table:
        given = {name: given[name] for name in given.keys() - {it.lower() for it in OF_THE_SINK}}
    _refuse_strangers(given, streaming=streaming)
    parsed = Options(
        server=server_of(given),
        subscribe=_subscribed(given),
        pattern=_pattern(given),
        columns=_names(given, "columns") if "columns" in given else None,
        include_properties=_flag(given, "includeProperties", default=True),
        starting=starting(given, streaming=streaming),
        ending=ending(given),
        rows_max=_limit(given, "maxRowsPerTrigger"),
        bytes_max=_limit(given, "maxBytesPerTrigger"),
        rows_min=_limit(given, "minRowsPerTrigger"),
        trigger_delay_s=_duration_s(given, "maxTriggerDelay", TRIGGER_DELAY),
        partitions_min=_limit(given, "minPartitions"),
        cursor=given.get("cursor", "").strip(),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
    )
    _refuse_contradictions(given, parsed)
    return parsed


def parse_either(options: Mapping[str, str], *, of_table: bool = False) -> Options:
    """Parse options when it is not known yet whether the query is a batch or a stream."""
    given = {name.lower() for name in options}
    for streaming, names in ((True, OF_A_STREAM), (False, OF_A_BATCH)):
        if given & {name.lower() for name in names}:
            return parse(options, streaming=streaming, of_table=of_table)
    try:
        return parse(options, streaming=True, of_table=of_table)
    except BadOption:
        return parse(options, streaming=False, of_table=of_table)


def _refuse_strangers(given: Given, *, streaming: bool) -> None:
    if not given:
        raise BadOption("subscribe", "", f"name what to read. {WITHOUT_OPTIONS}")
    advice = "an option of the sink; a query reads what subscribe names"
    refuse_unknown(
        {name: value for name, value in given.items() if name not in SPARK_OWN},
        NAMES,
        {name.lower(): advice for name in OF_THE_SINK},
    )
    for name in OF_A_BATCH if streaming else OF_A_STREAM:
        if name.lower() in given:
            kind = "batch" if streaming else "streaming"
            raise BadOption(name, given[name.lower()], f"only a {kind} query takes it; remove it")


def _refuse_contradictions(given: Given, parsed: Options) -> None:
    if parsed.rows_min > (parsed.rows_max or parsed.rows_min):
        advice = f"it exceeds maxRowsPerTrigger ({parsed.rows_max}); lower it"
        raise BadOption("minRowsPerTrigger", parsed.rows_min, advice)
    if parsed.partitions_min > PARTITIONS_MAX:
        raise BadOption("minPartitions", parsed.partitions_min, f"at most {PARTITIONS_MAX}")
    if "cursor" in given and not parsed.cursor:
        raise BadOption("cursor", given["cursor"], "give it a name, or leave the option out")


def _subscribed(given: Given) -> tuple[str, ...]:
    found = [name for name in ("subscribe", "subscribePattern", "path") if name.lower() in given]
    if len(found) > 1:
        advice = f"{found[0]} is set, too; use one of them"
        raise BadOption(found[1], given[found[1].lower()], advice)
    return (
        () if found == ["subscribePattern"] else _names(given, "subscribe", given.get("path", ""))
    )


def _pattern(given: Given) -> str:
    text = given.get("subscribepattern")
    if text is None:
        return ""
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption("subscribePattern", text, f"not a regular expression: {error}") from None
    if not text:
        raise BadOption("subscribePattern", text, "give it a regular expression, such as sales_.*")
    return text


def _names(given: Given, option: str, default: str = "") -> tuple[str, ...]:
    text = given.get(option, default)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        what = "collections or vchannels" if option == "subscribe" else "columns"
        raise BadOption(option, text, f"name one or more {what}, a,b,c")
    if len(set(names)) != len(names):
        raise BadOption(option, text, "a name is given twice; give each name once")
    return names


def _limit(given: Given, option: str) -> int:
    text = given.get(option.lower())
    if text is None:
        return 0
    if not re.fullmatch("[0-9]{1,18}", text.strip()) or int(text) == 0:
        raise BadOption(option, text, "use a whole number above 0")
    return int(text)


def _duration_s(given: Given, option: str, default: str) -> float:
    text = given.get(option.lower(), default)
    found = re.fullmatch("([0-9]{1,9})(ms|s|m|h)", text.strip().lower())
    if found is None:
        raise BadOption(option, text, "use a number with ms, s, m or h, such as 30s")
    return int(found[1]) * _SECONDS[found[2]]


def _flag(given: Given, option: str, *, default: bool) -> bool:
    text = given.get(option.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadOption(option, text, "use true or false")
    return text == "true"
