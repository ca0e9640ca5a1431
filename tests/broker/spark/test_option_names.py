"""Options that are not ours: Kafka's, misspelled ones, and those of the other side."""

import pytest

from broker.spark.option_names import OF_KAFKA
from broker.spark.refusals import BadOption
from broker.spark.sink.sink_options import NAMES as SINK_NAMES
from broker.spark.sink.sink_options import parse_sink
from broker.spark.source.source_options import NAMES, OF_THE_SINK, parse


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kafka.bootstrap.servers", "an option of Kafka's; use server"),
        ("maxOffsetsPerTrigger", "an option of Kafka's; use maxRowsPerTrigger"),
        ("minOffsetsPerTrigger", "use minRowsPerTrigger"),
        ("assign", "use subscribe with the names of vchannels"),
        ("startingOffsetsByTimestamp", "use startingTimestamp"),
        ("kafka.group.id", "use cursor"),
        ("includeHeaders", "use includeProperties"),
        ("kafka.security.protocol", "no counterpart"),
        ("topic", "an option of the sink; a query reads what subscribe names"),
        ("batchId", "an option of the sink"),
        ("startingOfsets", "did you mean startingOffsets?"),
        ("SERVERS", "did you mean server?"),
        ("maxRowPerTriger", "did you mean maxRowsPerTrigger?"),
        ("zzz", "use one of cluster, columns"),
    ],
)
def test_an_unknown_option_of_a_query_is_answered_with_ours(name: str, told: str) -> None:
    for streaming in (True, False):
        with pytest.raises(BadOption, match=r"\[TIDEMARK_BAD_OPTION\]") as refused:
            parse({"subscribe": "a", name: "x"}, streaming=streaming)
        assert told in str(refused.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kafka.bootstrap.servers", "use server"),
        ("kafka.acks", "no counterpart"),
        ("includeHeaders", "the sink writes the column properties anyway"),
        ("maxRowsPerTrigger", "an option of the source; remove it"),
        ("tpic", "did you mean topic?"),
        ("apId", "did you mean appId?"),
    ],
)
def test_an_unknown_option_of_a_write_is_answered_with_ours(name: str, told: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse_sink({"topic": "a", name: "x"}, streaming=True)
    assert told in str(refused.value)


def test_what_kafka_and_tidemark_call_alike_is_taken_and_no_advice_names_what_is_not() -> None:
    given = {"subscribe": "a", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    assert parse(given, streaming=True).subscribe == ("a",)
    known = {name.lower() for name in NAMES} | {name.lower() for name in SINK_NAMES}
    assert not OF_KAFKA.keys() & known
    assert set(OF_THE_SINK) == set(SINK_NAMES) - set(NAMES)
