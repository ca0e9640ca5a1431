"""A job on real Spark that reads and writes with tokens; run as a script, with a log of its own.

Prints one JSON line: what was read by each means, plans, errors, and the id of the application.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGGED = """rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c %m%n
logger.sql.name = org.apache.spark.sql
logger.sql.level = debug
"""
DIRECTORY = "log4j2.properties"
FINISHED_S_MAX = 600


def main() -> None:
    """Arguments: the broker, a folder. The environment has JOB_TOKEN; the file is in the folder."""
    server, folder = sys.argv[1], Path(sys.argv[2])
    token, wrong = os.environ.pop("JOB_TOKEN"), os.environ.pop("WRONG_TOKEN")
    spark = session(folder)
    found: dict[str, Any] = {"application": spark.sparkContext.applicationId, "plans": []}
    flights = {"server": server, "subscribe": "flights"}

    by_option = spark.read.format("tidemark").options(**flights, token=token).load()
    found["plans"].append(plan_of(by_option))
    found["by_option"] = numbers(by_option)

    rows = (
        spark.readStream.format("tidemark")
        .options(**flights, tokenFile=str(folder / "job.token"), startingOffsets="earliest")
        .option("cursor", "nightly")
        .load()
        .select("n")
    )
    copies = {"server": server, "topic": "copies", "token": token}
    # The second run has no rows left.
    for _ in range(2):
        query = (
            rows.writeStream.format("tidemark")
            .options(**copies, checkpointLocation=str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(FINISHED_S_MAX), "the query did not finish"
        found["progress"] = str(query.lastProgress)
    rest = spark.createDataFrame([(7,)], "n long").write.format("tidemark").options(**copies)
    rest.mode("append").save()

    spark.sql(
        f"CREATE TABLE kept USING tidemark OPTIONS (server '{server}', subscribe 'flights',"
        f" tokenFile '{folder / 'job.token'}')"
    )
    found["by_table"] = numbers(spark.table("kept"))
    found["plans"].append(str(spark.sql("DESCRIBE EXTENDED kept").collect()))

    # The user of the environment reads the copies, and nothing else.
    by_environment = {"server": server, "subscribe": "copies"}
    copied = spark.read.format("tidemark").options(**by_environment).load()
    found["by_environment"] = numbers(copied)
    found["errors"] = {
        "wrong": failure(spark, {**flights, "token": wrong}),
        "wrong write": failed_write(spark, {**copies, "token": wrong}),
        "denied": failure(spark, {**flights}),
        "misspelled": failure(spark, {**flights, "tokn": token}),
        "no file": failure(spark, {**flights, "tokenFile": str(folder / "none")}),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


def plan_of(frame: "DataFrame") -> str:
    """Every plan of a query, as `explain(True)` prints it."""
    return str(frame._jdf.queryExecution().toString())


def failure(spark: "SparkSession", options: dict[str, str]) -> str:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - after the variables are set

    try:
        numbers(spark.read.format("tidemark").options(**options).load())
    except PySparkException as error:
        return str(error)
    return ""


def failed_write(spark: "SparkSession", options: dict[str, str]) -> str:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - after the variables are set

    try:
        rows = spark.createDataFrame([(8,)], "n long").write.format("tidemark").options(**options)
        rows.mode("append").save()
    except PySparkException as error:
        return str(error)
    return ""


def session(folder: Path) -> "SparkSession":
    """With an executor of its own, and all that Spark can write in the folder, in plain text."""
    (folder / DIRECTORY).write_text(LOGGED)
    (folder / "events").mkdir()
    java = f"-Dlog4j2.configurationFile=file:{folder / DIRECTORY} -XX:+UseSerialGC"
    os.environ["SPARK_SUBMIT_OPTS"] = java
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the variables are set

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": java,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.TIDEMARK_TOKEN_FILE": os.environ["TIDEMARK_TOKEN_FILE"],
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file:{folder / 'events'}",
    }
    builder = SparkSession.builder.master("local-cluster[1,2,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
