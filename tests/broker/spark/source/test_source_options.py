"""Options are checked before anything is read, and a bad one is named with its value."""

import pytest

from broker.spark.refusals import BadOption
from broker.spark.source.bounds import EARLIEST, LATEST, At, AtCursor, AtGroup, Each, FromId, Start
from broker.spark.source.source_options import parse, parse_either

A_TICK = 117_000_000 << 18


def test_a_stream_starts_at_latest_and_a_batch_at_earliest_unless_told_otherwise() -> None:
    assert parse({"subscribe": "a"}, streaming=True).starting == LATEST
    assert parse({"subscribe": "a"}, streaming=False).starting == EARLIEST
    assert parse({"subscribe": "a"}, streaming=False).ending == LATEST


def test_names_of_options_are_read_in_any_case() -> None:
    options = parse(
        {"SUBSCRIBE": " a , b ", "MaxRowsPerTrigger": "7", "failondataloss": "False"},
        streaming=True,
    )
    assert options.subscribe == ("a", "b")
    assert options.rows_max == 7
    assert not options.fail_on_data_loss


def test_what_load_is_given_as_a_path_is_subscribed_to() -> None:
    assert parse({"path": "flights"}, streaming=False).subscribe == ("flights",)


def test_ticks_are_the_first_and_the_last_that_are_read() -> None:
    options = parse(
        {"subscribe": "a", "startingTick": str(A_TICK), "endingTick": str(A_TICK + 5)},
        streaming=False,
    )
    start = At(A_TICK - 1, "startingTick", str(A_TICK), keeps_all=True)
    assert options.starting == start
    assert options.ending == At(A_TICK + 5, "endingTick", str(A_TICK + 5))


@pytest.mark.parametrize(
    "text", ["117000000", "1970-01-02T08:30:00+00:00", "1970-01-02T10:30:00+02:00"]
)
def test_times_are_milliseconds_or_a_moment_and_the_end_is_not_read(text: str) -> None:
    options = parse(
        {"subscribe": "a", "startingTimestamp": text, "endingTimestamp": text}, streaming=False
    )
    assert options.starting == At(A_TICK - 1, "startingTimestamp", text)
    assert options.ending == At(A_TICK - 1, "endingTimestamp", text)


def test_a_delay_is_a_number_with_its_unit() -> None:
    given = {"subscribe": "a", "minRowsPerTrigger": "5"}
    assert parse(given, streaming=True).trigger_delay_s == 900
    for text, seconds in [("250ms", 0.25), ("30s", 30), ("2m", 120), ("1h", 3600)]:
        assert parse(given | {"maxTriggerDelay": text}, streaming=True).trigger_delay_s == seconds


def test_a_start_is_given_for_each_vchannel_or_collection() -> None:
    text = '{"v": "latest", "w": {"id": 7}, "x": {"tick": 9}, "y": {"timestamp": 117000000}}'
    each = parse({"subscribe": "a", "startingOffsets": text}, streaming=True).starting
    starts: dict[str, Start] = {
        "v": LATEST,
        "w": FromId(7),
        "x": At(8, "startingOffsets", text, keeps_all=True),
        "y": At(A_TICK - 1, "startingOffsets", text),
    }
    assert each == Each(starts, text)
    at_cursor = parse({"subscribe": "a", "startingCursor": "nightly"}, streaming=False)
    assert at_cursor.starting == AtCursor("nightly")
    at_group = parse({"subscribe": "a", "startingGroup": "workers"}, streaming=True)
    assert at_group.starting == AtGroup("workers")


def test_a_pattern_takes_the_place_of_names() -> None:
    options = parse({"subscribePattern": "sales_.*"}, streaming=True)
    assert (options.subscribe, options.pattern) == ((), "sales_.*")
    for text, told in [("(", "not a regular expression"), ("", "give it a regular expression")]:
        with pytest.raises(BadOption, match=told):
            parse({"subscribePattern": text}, streaming=True)


def test_a_schema_may_be_asked_for_before_it_is_known_what_for() -> None:
    assert parse_either({"subscribe": "a", "endingTick": "5"}).ending == At(5, "endingTick", "5")
    assert parse_either({"subscribe": "a", "cursor": "nightly"}).cursor == "nightly"
    for given, told in [({"endingTick": "x"}, "use a time tick"), ({"cursor": " "}, "a name")]:
        with pytest.raises(BadOption, match=told):
            parse_either({"subscribe": "a"} | given)


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({"subscribe": ""}, True, "name one or more collections"),
        ({"subscribe": "a,a"}, True, "once"),
        ({"columns": " , "}, True, "name one or more columns"),
        ({"columns": "x,x"}, True, "once"),
        ({"topic": "x"}, True, "an option of the sink"),
        ({"startingOffsets": "soon"}, True, "earliest or latest"),
        ({"startingOffsets": '{"a": {"0": 23}}'}, True, "the start of 'a' is {'0': 23}; use"),
        ({"startingOffsets": '{"a": -2}'}, True, "the start of 'a' is -2; use"),
        ({"startingOffsets": '{"a": {"id": -1}}'}, True, '{"id": 5}'),
        ({"startingOffsets": '{"a": {"tick": 0}}'}, True, "use a time tick"),
        ({"startingOffsets": '{"a": {"timestamp": "noon"}}'}, True, "Unix milliseconds"),
        ({"startingOffsets": '{"a": {"id": 1, "tick": 2}}'}, True, "the start of 'a' is"),
        ({"startingOffsets": '{"a": '}, True, "not JSON"),
        ({"startingCursor": " "}, True, "give the name of a cursor"),
        ({"startingCursor": "a", "startingTick": "5"}, True, "use one"),
        ({"startingGroup": " "}, True, "give the name of a group"),
        ({"startingGroup": "a", "startingCursor": "a"}, True, "use one"),
        ({"subscribePattern": "a.*"}, True, "subscribe is set, too"),
        ({"endingOffsets": '{"a": {"0": 23}}'}, False, "endingTick or endingTimestamp"),
        ({"startingOffsets": "latest"}, False, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, False, "cannot end at earliest"),
        ({"endingOffsets": "latest"}, True, "only a batch query takes it"),
        ({"endingTick": "7"}, True, "only a batch query takes it"),
        ({"endingTimestamp": "7"}, True, "only a batch query takes it"),
        ({"startingTick": "0"}, True, "use a time tick"),
        ({"startingTick": "-1"}, True, "use a time tick"),
        ({"startingTick": str(1 << 63)}, True, "use a time tick"),
        ({"endingTick": "x"}, False, "use a time tick"),
        ({"startingTimestamp": "yesterday"}, True, "Unix milliseconds"),
        ({"startingTimestamp": "2026-11-22T03:00:00"}, True, "with its zone"),
        ({"startingTimestamp": "999999999999999"}, True, "out of range; use 0 to"),
        ({"startingTimestamp": "1900-01-01T00:00:00Z"}, True, "out of range; use 0 to"),
        ({"startingTick": "5", "startingOffsets": "earliest"}, True, "use one"),
        ({"endingTick": "5", "endingTimestamp": "5"}, False, "use one"),
        ({"maxRowsPerTrigger": "0"}, True, "above 0"),
        ({"maxBytesPerTrigger": "-5"}, True, "above 0"),
        ({"minRowsPerTrigger": "many"}, True, "above 0"),
        ({"minRowsPerTrigger": "7", "maxRowsPerTrigger": "6"}, True, "exceeds maxRowsPerTrigger"),
        ({"minRowsPerTrigger": "7"}, False, "only a streaming query takes it"),
        ({"maxTriggerDelay": "soon"}, True, "such as 30s"),
        ({"maxTriggerDelay": "5 weeks"}, True, "such as 30s"),
        ({"minPartitions": "0"}, True, "above 0"),
        ({"minPartitions": "10001"}, True, "at most 10000"),
        ({"cursor": "  "}, True, "give it a name"),
        ({"cursor": "nightly"}, False, "only a streaming query takes it"),
        ({"failOnDataLoss": "maybe"}, True, "true or false"),
        ({"includeProperties": "1"}, True, "true or false"),
    ],
)
def test_a_bad_option_is_named_with_the_way_out(
    given: dict[str, str], streaming: bool, told: str
) -> None:
    with pytest.raises(BadOption, match=r"\[TIDEMARK_BAD_OPTION\]") as refused:
        parse({"subscribe": "a"} | given, streaming=streaming)
    assert told in str(refused.value)
