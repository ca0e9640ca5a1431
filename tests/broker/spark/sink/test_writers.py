"""The name of a micro-batch: from what Spark tells its tasks, and from nothing else."""

import pytest

from broker.spark.refusals import NotSupported
from broker.spark.sink.writers import BATCH_ID, QUERY_ID, micro_batch


def test_a_micro_batch_has_the_number_and_the_query_that_spark_says() -> None:
    given = {BATCH_ID: "12", QUERY_ID: "b2c4"}
    assert micro_batch("", given.get) == ("b2c4", 12)
    assert micro_batch("nightly", given.get) == ("nightly", 12)


@pytest.mark.parametrize(
    ("app", "given", "told"),
    [
        ("", {}, "'streaming.sql.batchId' (it is None)"),
        ("nightly", {QUERY_ID: "b2c4"}, "'streaming.sql.batchId' (it is None)"),
        ("nightly", {BATCH_ID: ""}, "(it is '')"),
        ("", {BATCH_ID: "12"}, "'sql.streaming.queryId', the query's id"),
        ("", {BATCH_ID: "12", QUERY_ID: ""}, "Give option appId"),
    ],
)
def test_without_them_nothing_is_written_under_a_number_that_would_look_like_a_repeat(
    app: str, given: dict[str, str], told: str
) -> None:
    with pytest.raises(NotSupported, match=r"^\[TIDEMARK_NOT_SUPPORTED\]") as refused:
        micro_batch(app, given.get)
    assert told in str(refused.value)
