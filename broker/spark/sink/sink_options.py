"""The sink's options, checked before anything is written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.model.groups.delivery_times import AHEAD_MS_MAX
from broker.spark.option_names import refuse_unknown
from broker.spark.refusals import BadOption
from broker.spark.server_options import SERVER_OPTIONS, Server, server_of
from broker.spark.source.source_options import NAMES as SOURCE_NAMES
from broker.spark.source.source_options import SPARK_OWN
from broker.spark.table_options import WITHOUT_OPTIONS, with_options_of_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS: Mapping[str, tuple[str, str]] = {
    **SERVER_OPTIONS,
    "topic": (
        "none",
        (
            "collection or vchannel that receives every row; also the path of `save` and `start`; "
            "in a table or view, the one that `subscribe` names"
        ),
    ),
    "key": ("none", "collection with a schema: the column whose value chooses the shard"),
    "partition": (
        "_default",
        "name of the partition that receives every row, of a collection with a schema",
    ),
    "appId": ("the query's id", "name under which batches are committed, the same in every run"),
    "batchId": ("none", "`df.write` only, with `appId`: number of the batch; a repeat is ignored"),
    "ttl": ("none", "consumer groups pass over rows that were committed longer ago, such as 1h"),
    "timeout": ("60s", "longest wait for one append, and for the commit"),
}
"""Each option with its default and its meaning, for people."""
NAMES = tuple(OPTIONS)
TIMEOUT_S = 60.0
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Parsed options.

    `topic`: the collection or vchannel that every row goes to; "" when each row names its own.
    `key`: the column whose value chooses the shard of an Arrow row; None for none. `partition`: the
    partition of every row; None for the default one. `app` and
    `batch`: the name and number under which the write is committed; "" and None when the option is
    not set. `timeout_s`: the longest wait for one append, and for the commit. `ttl_s`: so long
    consumer groups get a row after its commit; None for ever.
    """

    server: Server
    topic: str
    key: str | None
    app: str
    batch: int | None
    timeout_s: float
    partition: str | None = None
    ttl_s: float | None = None


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse options as Spark passes them: strings, names in any case. Raises BadOption."""
    given = _of_the_sink({name.lower(): value for name, value in options.items()})
    return SinkOptions(
        server=server_of(given),
        topic=_topic(given),
        key=_name(given, "key") if "key" in given else None,
        app=_name(given, "appId") if "appid" in given else "",
        batch=_batch(given, streaming=streaming),
        timeout_s=_seconds(given, "timeout") or TIMEOUT_S,
        partition=_name(given, "partition") if "partition" in given else None,
        ttl_s=_seconds(given, "ttl"),
    )


def parse_target(
    options: Mapping[str, str], columns: "StructType", *, streaming: bool
) -> SinkOptions:
    """Parse options of a write whose rows have these columns; those of a table are in the columns.

    Raises BadOption where nothing says which collection receives the rows.
    """
    given = {name.lower(): value for name, value in options.items()}
    if not given.keys() & {"topic", "path", "subscribe", "subscribepattern"}:
        given, _ = with_options_of_table(options, columns)
    parsed = parse_sink(given, streaming=streaming)
    if not parsed.topic and not {"collection", "vchannel"} & set(columns.names):
        raise BadOption(
            "topic", "", f"name the collection that receives the rows. {WITHOUT_OPTIONS}"
        )
    return parsed


def _of_the_sink(given: Mapping[str, str]) -> dict[str, str]:
    """Return the sink's own options: a table or a view has those of the source beside them."""
    source = {name.lower(): "an option of the source; remove it" for name in SOURCE_NAMES}
    own = {name.lower() for name in NAMES}
    if {"subscribe", "subscribepattern"} & given.keys():
        # Only a table or a view is read and written under the same options.
        found = {name: value for name, value in given.items() if name in own or name not in source}
        if "subscribe" in given and not {"topic", "path"} & found.keys():
            found["topic"] = _only(given["subscribe"])
        given = found
    checked = {name: value for name, value in given.items() if name not in SPARK_OWN}
    refuse_unknown(checked, NAMES, source | {"subscribe": "use topic"})
    return dict(given)


def _only(subscribe: str) -> str:
    names = [name.strip() for name in subscribe.split(",") if name.strip()]
    if len(names) != 1:
        raise BadOption("subscribe", subscribe, "rows go to one collection; name it in topic")
    return names[0]


def _topic(given: Mapping[str, str]) -> str:
    if "topic" in given and "path" in given:
        advice = f"the path {given['path']!r} is set, too; use one of them"
        raise BadOption("topic", given["topic"], advice)
    for option in ("topic", "path"):
        if option in given:
            return _name(given, option)
    return ""


def _batch(given: Mapping[str, str], *, streaming: bool) -> int | None:
    text = given.get("batchid")
    if text is None:
        if "appid" in given and not streaming:
            advice = "give batchId, too: both together identify a repeat"
            raise BadOption("appId", given["appid"], advice)
        return None
    if streaming:
        raise BadOption("batchId", text, "a streaming query numbers its batches itself")
    if "appid" not in given:
        raise BadOption("batchId", text, "give appId, too: both together identify a repeat")
    if not re.fullmatch("[0-9]{1,18}", text.strip()):
        raise BadOption("batchId", text, "use a whole number, 0 or above")
    return int(text)


def _name(given: Mapping[str, str], option: str) -> str:
    name = given[option.lower()].strip()
    if not name:
        raise BadOption(
            option, given[option.lower()], "it is empty; give a name, or remove the option"
        )
    return name


def _seconds(given: Mapping[str, str], option: str) -> float | None:
    text = given.get(option)
    if text is None:
        return None
    found = re.fullmatch("([0-9]{1,9})(ms|s|m|h)", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise BadOption(option, text, "use a number above 0 with ms, s, m or h, such as 30s")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if option == "ttl" and seconds > AHEAD_MS_MAX / 1000:
        raise BadOption(option, text, "use at most 8784h, 366 days, or remove it")
    return seconds
