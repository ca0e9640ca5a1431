"""Options are checked before anything is read, and a bad one is named with its value."""

import pytest

from broker.spark.options import EARLIEST, LATEST, BadOption, parse, parse_either


def test_a_stream_starts_at_latest_and_a_batch_at_earliest_unless_told_otherwise() -> None:
    assert parse({"subscribe": "a"}, streaming=True).starting == LATEST
    assert parse({"subscribe": "a"}, streaming=False).starting == EARLIEST


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


def test_a_json_bound_keeps_its_ids() -> None:
    options = parse(
        {"subscribe": "a", "startingOffsets": '{"a": {"0": 23, "1": -2}}'}, streaming=True
    )
    assert options.starting == {"a": {"0": 23, "1": -2}}


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({}, True, "subscribe"),
        ({"subscribe": "a,a"}, True, "once"),
        ({"subscribe": "a", "topic": "x"}, True, "unknown"),
        ({"subscribe": "a", "startingOffsets": "soon"}, True, "earliest, latest"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, True, "JSON such as"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, True, "JSON such as"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": true}}'}, True, "JSON such as"),
        ({"subscribe": "a", "startingOffsets": "latest"}, False, "cannot start at latest"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, False, "cannot start"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, False, "cannot end at earliest"),
        ({"subscribe": "a", "endingOffsets": "latest"}, True, "only a batch query has an end"),
        ({"subscribe": "a", "maxRowsPerTrigger": "0"}, True, "above 0"),
        ({"subscribe": "a", "maxBytesPerTrigger": "-5"}, True, "above 0"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, True, "true or false"),
    ],
)
def test_a_bad_option_is_named_with_the_way_out(
    given: dict[str, str], streaming: bool, told: str
) -> None:
    with pytest.raises(BadOption, match=r"\[TIDEMARK_BAD_OPTION\]") as refused:
        parse(given, streaming=streaming)
    assert told in str(refused.value)


def test_options_of_either_kind_of_query_pass_before_the_kind_is_known() -> None:
    assert parse_either({"subscribe": "a", "startingOffsets": "latest"}).starting == LATEST
    assert parse_either({"subscribe": "a", "endingOffsets": "latest"}).ending == LATEST
    with pytest.raises(BadOption, match="above 0"):
        parse_either({"subscribe": "a", "maxRowsPerTrigger": "0"})
