"""Tables and views in SQL: read and written under the options they were made with, or refused."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.broker_process import BrokerProcess
from tests.spark.conftest import WithClient
from tests.spark.test_columns import make
from tests.spark.test_source import Fill, finish, run_available, stream, values

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def collections(broker: BrokerProcess) -> BrokerProcess:
    """Collections of rows, and their tables."""
    for name in ("table_rows", "table_more", "table_strict"):
        make(broker.address, name, [pa.table({"n": [1, 2, 3], "t": ["a", "b", "c"]})])
    return broker


@pytest.fixture
def sql(spark: SparkSession, collections: BrokerProcess) -> Iterator[Sql]:
    """Run statements, SERVER being the broker's option; the tables are dropped in the end."""

    def run(*statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for text in statements:
            found = spark.sql(text.replace("SERVER", f"server '{collections.address}'"))
            rows = sorted(map(tuple, found.collect()))
        return rows

    yield run
    for table in spark.catalog.listTables():
        spark.sql(f"drop {'view' if 'VIEW' in table.tableType else 'table'} if exists {table.name}")


def test_a_table_is_read_and_inserted_into_under_its_options(sql: Sql, spark: SparkSession) -> None:
    sql(
        "create table rows using tidemark options (SERVER, subscribe 'table_rows', key 'n')",
        "create table more using tidemark options (SERVER, subscribe 'table_more')",
        "insert into rows (t, n) values ('d', 4)",
        "insert into more (n, t) select n, t from rows where n > 2",
    )
    assert sql("select n, t from rows") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert sql("select n from more") == [(1,), (2,), (3,), (3,), (4,)]
    assert spark.table("rows").where("n = 4").select("t").collect()[0][0] == "d"
    tick = max(row._time_tick for row in spark.table("rows").collect())
    assert sql(f"select t from rows with (startingTick = '{tick}')") == [("d",)]
    assert spark.read.option("startingTick", tick).table("rows").count() == 1
    sql("create view large as select n from rows where n > 3")
    assert sql("select * from large") == [(4,)]


def test_frames_are_appended_to_a_table_by_name(sql: Sql, spark: SparkSession) -> None:
    sql("create table more using tidemark options (SERVER, subscribe 'table_more')")
    before = spark.table("more").count()
    rows = spark.createDataFrame([(20, "s")], "n long, t string")
    rows.writeTo("more").append()
    rows.write.format("tidemark").mode("append").saveAsTable("more")
    assert spark.table("more").where("n = 20").count() == 2
    assert spark.table("more").count() == before + 2


def test_a_stream_reads_a_table_and_writes_to_one_under_its_own_options(
    sql: Sql, spark: SparkSession, collections: BrokerProcess, tmp_path: Any
) -> None:
    start = "subscribe 'table_rows', startingOffsets 'earliest'"
    sql(f"create table rows using tidemark options (SERVER, {start})")
    expected = spark.table("rows").count()
    frame = spark.readStream.table("rows").select("n", "t")
    batches = run_available(frame, str(tmp_path / "checkpoint"), tmp_path / "out")
    assert sum(one["numInputRows"] for one in batches) == expected
    query = frame.writeStream.option("checkpointLocation", str(tmp_path / "other"))
    with pytest.raises(PySparkException, match="Is this a table"):
        finish(query.trigger(availableNow=True).toTable("rows"))


def test_a_view_is_read_and_inserted_into(sql: Sql, fill: Fill, with_client: WithClient) -> None:
    fill("view_values", values("v", 2))
    sql(
        "create temporary view seen using tidemark options (SERVER, subscribe 'view_values')",
        "insert into seen (value, key) values (binary('new'), binary('k'))",
    )
    found = sql("select cast(value as string), collection from seen")
    assert found == [(it, "view_values") for it in ("new", "v-00000", "v-00001")]
    sql(
        "create table few using tidemark"
        " options (SERVER, subscribe 'view_values', columns 'value,time_tick')",
        "insert into few (value) values (binary('newer'))",
    )
    assert len(sql("select value from few")) == 4


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["create table t using tidemark options (SERVER, subscrbe 'a')"], "mean subscribe"),
        (["create table t using tidemark options (SERVER, subscribe 'nosuch')"], "NO_SUCH_COLL"),
        (["create table t using tidemark tblproperties (subscribe = 'a')"], "not in TBLPROPERTIES"),
        (["create table t (n bigint) using tidemark", "select * from t"], "Is this a table"),
        (["create table t (n bigint) using tidemark", "insert into t values (1)"], "Is this a tab"),
        (["create table t using tidemark as select 1L n"], "Is this a table"),
        (["MADE", "insert into made select * from made"], "the broker sets it"),
        (["MADE", "insert overwrite made (n) values (1)"], "a log cannot be overwritten"),
        (["MADE", "truncate table made"], "does not support"),
        (["MADE", "delete from made where n = 1"], "does not support"),
        (["MADE", "select n from made with (columns = 'n')"], "the table has its columns"),
        (["MADE", "insert into made (t) select 5 from made where nosuch"], "nosuch"),
    ],
)
def test_what_spark_or_a_log_cannot_do_is_refused(
    sql: Sql, statements: list[str], told: str
) -> None:
    made = "create table made using tidemark options (SERVER, subscribe 'table_strict')"
    *before, last = [made if text == "MADE" else text for text in statements]
    sql(*before)
    with pytest.raises((PySparkException, AnalysisException), match=told):
        sql(last)


def test_filters_on_ticks_reach_the_broker_where_spark_is_told_to_push_them(
    sql: Sql, spark: SparkSession
) -> None:
    sql("create table rows using tidemark options (SERVER, subscribe 'table_rows')")
    ticks = sorted(row._time_tick for row in spark.table("rows").collect())
    wanted = f"select n from rows where _time_tick > {ticks[0]} and _time_tick <= {ticks[-1]}"
    unpushed = sql(wanted)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert sql(wanted) == unpushed
        (plan,) = sql(f"explain {wanted}")
        assert "_time_tick" not in plan[0].partition("BatchScan")[0], "Spark filters no more"
        assert sql("select n from rows where n = 3") == [(3,)]
        nothing = "select n from rows where _timestamp > timestamp '2200-01-01 00:00:00'"
        assert sql(nothing) == []
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_over_a_pattern_reports_what_is_unread(
    spark: SparkSession, collections: BrokerProcess, tmp_path: Any
) -> None:
    given = {"subscribePattern": "table_(rows|more)", "startingOffsets": "earliest"}
    reader = spark.readStream.format("tidemark").option("server", collections.address)
    frame = reader.options(**given, maxRowsPerTrigger="3").load()
    batches = run_available(frame.select("n"), str(tmp_path / "checkpoint"), tmp_path / "out")
    read = 0
    total = sum(one["numInputRows"] for one in batches)
    assert total >= 6
    for one in batches:
        read += one["numInputRows"]
        latest = one["sources"][0]["latestOffset"]
        found = latest if isinstance(latest, dict) else json.loads(latest)
        assert found["behind"]["rows"] == total - read
    with pytest.raises(PySparkException, match="did you mean subscribePattern"):
        stream(spark, collections, "x", subscribePatern="y")
