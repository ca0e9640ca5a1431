"""The generated tables of the pages, each made from the code that it describes."""

from collections.abc import Callable, Mapping
from typing import Final

from pages.commands import cli
from pages.declared import (
    client_settings,
    errors,
    limits,
    settings,
    spark_options,
    spark_sink_options,
)
from pages.metrics import metrics
from pages.permissions import permissions
from pages.speed import (
    speed,
    speed_goals,
    speed_goals_compiled,
    speed_in_kafka,
    speed_runs,
    speed_runs_compiled,
)
from pages.states import state_tables

TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "cli": cli,
    "client-settings": client_settings,
    "errors": errors,
    "limits": limits,
    "metrics": metrics,
    "permissions": permissions,
    "settings": settings,
    "spark-options": spark_options,
    "spark-sink-options": spark_sink_options,
    "speed": speed,
    "speed-goals": speed_goals,
    "speed-goals-compiled": speed_goals_compiled,
    "speed-in-kafka": speed_in_kafka,
    "speed-runs": speed_runs,
    "speed-runs-compiled": speed_runs_compiled,
    "state-tables": state_tables,
}
