"""A quiet Spark session on two local cores, for scripts."""

import os
import sys
from pathlib import Path
from typing import Any

LOG_SETTINGS = """\
rootLogger.level = {level}
rootLogger.appenderRef.c.ref = c
appender.c.type = Console
appender.c.name = c
appender.c.target = SYSTEM_ERR
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %p %m%n
"""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def local_spark(folder: Path, settings: dict[str, str]) -> Any:
    """The session, bound to loopback, with its warehouse in `folder`; logs errors only."""
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(LOG_SETTINGS.format(level="error"))
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SUBMIT_OPTS=f"-Dlog4j2.configurationFile=file:{log_settings}",
    )
    # Not at the top: the quickstart imports this module without Spark, too.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]")
    for name, value in (SETTINGS | settings).items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
