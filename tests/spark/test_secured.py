"""Spark reads and writes a broker that asks for certificates."""

from pathlib import Path
from typing import TYPE_CHECKING

from broker.client import connect
from tests.broker_process import BrokerProcess
from tests.issued_files import Authorities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def test_a_query_and_a_write_with_certificates(spark: "SparkSession", tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "tls")
    files, tls = ours.server(), ours.client()
    settings = {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(ours.ca)}
    with BrokerProcess(tmp_path / "data", "127.0.0.1:0", pchannels="1", **settings) as broker:
        async with connect(broker.listen, tls=tls) as log:
            await log.collections.create("flights", shards=2)
            await log.append_batch("flights", [b"one", b"two"])
        options = {
            "server": broker.listen,
            "tlsCa": str(tls.ca),
            "tlsCert": str(tls.cert),
            "tlsKey": str(tls.key),
        }
        rows = spark.read.format("tidemark").options(**options).option("subscribe", "flights")
        found = rows.load().selectExpr("cast(value as string) as value")
        assert sorted(row.value for row in found.collect()) == ["one", "two"]
        spark.createDataFrame([(b"three",)], ["value"]).write.format("tidemark").options(
            **options
        ).option("topic", "flights").mode("append").save()
        assert rows.load().count() == 3
