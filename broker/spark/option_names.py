"""Refuses options that are not ours, and says which of ours the user means.

Two kinds of names come here: those of Kafka's source and sink, which people type from habit, and
misspelled ones.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from broker.spark.refusals import BadOption

SIMILAR: Final = 0.7
"""How alike two names must be for one to be suggested for the other, from 0 to 1."""

OF_KAFKA: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "use server: the HOST:PORT of one broker or coordinator",
    "kafka.group.id": "use cursor: the broker keeps the position of the query under that name",
    "groupidprefix": "use cursor: the broker keeps the position of the query under that name",
    "assign": "use subscribe with the names of vchannels",
    "startingoffsetsbytimestamp": (
        'use startingTimestamp, or startingOffsets with {"VCHANNEL": {"timestamp": MILLISECONDS}}'
    ),
    "endingoffsetsbytimestamp": "use endingTimestamp",
    "startingoffsetsbytimestampstrategy": "remove it: a start behind the newest message is latest",
    "maxoffsetspertrigger": "use maxRowsPerTrigger",
    "minoffsetspertrigger": "use minRowsPerTrigger",
    "maxrecordsperpartition": "use minPartitions; a task reads at most about 64 MiB anyway",
    "includeheaders": "use includeProperties; the sink writes the column properties anyway",
    "fetchoffset.numretries": "remove it: calls are retried for a minute",
    "fetchoffset.retryintervalms": "remove it: calls are retried for a minute",
    "kafkaconsumer.polltimeoutms": "remove it: reads are retried for a minute",
}
"""Kafka's options that have another name here, or none. The others are named as ours are."""
KAFKA_PREFIX: Final = "kafka."
OF_KAFKA_CLIENT: Final = "remove it: settings of Kafka's client have no counterpart"


def refuse_unknown(
    given: Mapping[str, str], known: Iterable[str], foreign: Mapping[str, str]
) -> None:
    """Raise BadOption for the first option that is not `known`; names in `given` are lower case.

    `foreign`: names that another kind of query takes, in lower case, with what to use here.
    """
    ours = {name.lower(): name for name in known}
    for name, value in given.items():
        if name not in ours:
            raise BadOption(name, value, _advice(name, ours, foreign))


def _advice(name: str, ours: Mapping[str, str], foreign: Mapping[str, str]) -> str:
    if name in foreign:
        return foreign[name]
    if name in OF_KAFKA:
        return f"an option of Kafka's; {OF_KAFKA[name]}"
    if name.startswith(KAFKA_PREFIX):
        return f"an option of Kafka's; {OF_KAFKA_CLIENT}"
    everything = ", ".join(sorted(set(ours.values()), key=str.lower))
    near = get_close_matches(name, ours, n=1, cutoff=SIMILAR)
    if near:
        return f"unknown; did you mean {ours[near[0]]}? All options: {everything}"
    return f"unknown; use one of {everything}"
