"""A table's options: kept in the metadata of a column, where a query and an INSERT find them."""

from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from broker.spark.refusals import BadOption, NotSupported
from broker.spark.sink.sink_options import parse_target
from broker.spark.source.source_options import parse
from broker.spark.table_options import of_new_table, options_in, with_options, with_options_of_table

ROWS = StructType([StructField("n", LongType()), StructField("_time_tick", LongType())])
OPTIONS = {"server": "h:1", "subscribe": "rows", "startingtick": "7", "key": "n"}
CREATED = {f"option.{name}": value for name, value in OPTIONS.items()} | OPTIONS


def table(**options: str) -> StructType:
    return with_options(ROWS, options or OPTIONS)


def test_the_options_of_create_table_are_told_from_what_spark_adds() -> None:
    spark: dict[str, str] = {"provider": "tidemark", "owner": "me", "comment": "nightly"}
    assert of_new_table(CREATED | spark) == OPTIONS
    assert of_new_table({"server": "h:1", "subscribe": "rows"}) is None
    by_location = {"provider": "tidemark", "location": "rows", "path": "rows"}
    assert of_new_table(by_location) == {"path": "rows"}
    with pytest.raises(BadOption, match="not in TBLPROPERTIES"):
        of_new_table({"provider": "tidemark", "subscribe": "rows"})


def test_a_table_takes_the_file_of_a_token_and_not_the_token() -> None:
    for given in ({"token": "planted"}, {"token": "planted", "option.token": "planted"}):
        with pytest.raises(BadOption, match="use tokenFile, or the environment") as refused:
            of_new_table({"provider": "tidemark", **given})
        assert "planted" not in str(refused.value)
    made = table(subscribe="rows", tokenfile="/run/token")
    given, of_table = with_options_of_table({"token": "planted"}, made)
    assert of_table
    parsed = parse(given, streaming=False, of_table=of_table)
    assert (parsed.server.current_token(), parsed.server.token_file) == ("planted", "")
    assert "planted" not in repr(parsed)


def test_one_column_carries_them_and_a_table_without_it_is_refused() -> None:
    made = table()
    assert [bool(field.metadata) for field in made] == [False, True]
    restored = StructType.fromJson(made.jsonValue())
    assert options_in(restored) == OPTIONS
    assert options_in(ROWS) == {}
    messages = StructType(
        [StructField("value", StringType()), StructField("time_tick", LongType())]
    )
    assert options_in(with_options(messages, OPTIONS)) == OPTIONS
    with pytest.raises(NotSupported, match="time_tick"):
        with_options(StructType([StructField("value", StringType())]), OPTIONS)


def test_a_query_gives_more_options_and_its_start_replaces_that_of_the_table() -> None:
    given, of_table = with_options_of_table({"startingOffsets": "earliest"}, table())
    assert of_table
    parsed = parse(given, streaming=False, of_table=of_table)
    assert (parsed.server.address, parsed.subscribe, parsed.starting) == (
        "h:1",
        ("rows",),
        "earliest",
    )
    assert with_options_of_table({"Server": "o:2"}, ROWS) == ({"server": "o:2"}, False)
    with pytest.raises(BadOption, match="the table has its columns"):
        with_options_of_table({"columns": "n"}, table())


def test_rows_of_an_insert_go_where_the_table_reads_with_the_options_of_the_sink() -> None:
    options = parse_target({}, table(), streaming=False)
    assert (options.server.address, options.topic, options.key) == ("h:1", "rows", "n")
    other = parse_target({"topic": "other"}, table(), streaming=False)
    assert (other.server.address, other.topic, other.key) == ("127.0.0.1:19531", "other", None)
    view = {"server": "h:1", "subscribe": "rows", "startingOffsets": "earliest"}
    assert parse_target(view, ROWS, streaming=False).topic == "rows"


@pytest.mark.parametrize(
    ("given", "columns", "told"),
    [
        ({}, ROWS, "Is this a table?"),
        ({"server": "h:1"}, ROWS, "name the collection that receives the rows"),
        ({"subscribe": "a,b"}, ROWS, "rows go to one collection; name it in topic"),
        ({}, table(server="h:1", subscribepattern="a.*"), "name the collection"),
        ({}, table(server="h:1", subscribe="a,b"), "rows go to one collection"),
    ],
)
def test_rows_without_one_target_are_refused(
    given: dict[str, str], columns: Any, told: str
) -> None:
    with pytest.raises(BadOption) as refused:
        parse_target(given, columns, streaming=False)
    assert told in str(refused.value)


def test_a_query_of_a_table_without_options_is_told_how_to_make_the_table() -> None:
    with pytest.raises(BadOption, match="CREATE TABLE name USING tidemark OPTIONS"):
        parse({}, streaming=False)
