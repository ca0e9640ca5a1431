"""Keeps the options of a table where Spark's catalog lets a Python source find them again.

Spark passes the OPTIONS of `CREATE TABLE` to the source once, when it asks for the columns. Queries
of the table and INSERT INTO it get none of them. So the columns carry them: the options are the
metadata of one column, which Spark stores in its catalog, hands to the reader, and puts on the rows
of an INSERT when it fits them to the table. This column holds ticks, so rows that are inserted have
null in it; rows that were read from a table never do, and cannot be taken for rows of an INSERT.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.spark.refusals import BadOption, NotSupported

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY: Final = "tidemark.options"
TICKS: Final = ("_time_tick", "time_tick")
"""Columns that carry the options: of rows, and of messages."""
PREFIX: Final = "option."
"""Spark passes each option of a table twice: with this prefix, and without it."""
OF_A_TABLE: Final = "provider"
"""A property that every new table has, and a query never."""
KEPT_PATH: Final = "path"
EXCLUSIVE: Final = (
    ("subscribe", "subscribepattern", "path"),
    ("startingoffsets", "startingtick", "startingtimestamp", "startingcursor", "startinggroup"),
    ("endingoffsets", "endingtick", "endingtimestamp"),
    ("topic", "path"),
    ("token", "tokenfile"),
)
"""Groups of options of which a query gives one; one given in a query replaces all of the table."""
WITHOUT_OPTIONS: Final = (
    "Is this a table? Spark passes the options of a table only when it was made by CREATE TABLE"
    " name USING tidemark OPTIONS (...) without columns; not for a table with columns written"
    " down, or made by AS SELECT or saveAsTable. Give the options in the query, or make it again"
)


def of_new_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of the table that Spark is making; None when it makes none.

    `options`: as Spark passes them, names in any case. Raises BadOption for options that were given
    as TBLPROPERTIES.
    """
    given = {name.lower(): value for name, value in options.items()}
    if OF_A_TABLE not in given:
        return None
    if kept := {"token", f"{PREFIX}token"} & given.keys():
        advice = (
            "a table would show it to all who may see the table; use tokenFile, or the environment"
            " variable TIDEMARK_TOKEN of the driver and the executors"
        )
        raise BadOption("token", given[kept.pop()], advice)
    found = {
        name.removeprefix(PREFIX): value
        for name, value in given.items()
        if name.startswith(PREFIX) or name == KEPT_PATH
    }
    for name in ("server", "subscribe", "subscribepattern"):
        if name in given and name not in found:
            raise BadOption(name, given[name], "give it in OPTIONS (...), not in TBLPROPERTIES")
    return found


def with_options(columns: "StructType", options: Mapping[str, str]) -> "StructType":
    """Return the columns of a new table, which carry its options. Raises NotSupported."""
    from pyspark.sql.types import StructField, StructType

    carriers = [name for name in TICKS if name in columns.names]
    if not carriers:
        raise NotSupported("a table needs the column time_tick; add it to option columns")
    return StructType(
        [
            StructField(it.name, it.dataType, it.nullable, {KEY: dict(options)})
            if it.name == carriers[0]
            else it
            for it in columns
        ]
    )


def with_options_of_table(
    given: Mapping[str, str], columns: "StructType"
) -> tuple[dict[str, str], bool]:
    """Return the options of a query, and whether some are those of a table.

    The query's own options come first, names in lower case. Raises BadOption.
    """
    own = {name.lower(): value for name, value in given.items()}
    of_table = options_in(columns)
    if of_table and "columns" in own:
        advice = "the table has its columns; select some, or name them in CREATE TABLE"
        raise BadOption("columns", own["columns"], advice)
    replaced = {name for group in EXCLUSIVE if own.keys() & {*group} for name in group}
    kept = {name: value for name, value in of_table.items() if name not in replaced}
    return kept | own, bool(of_table)


def options_in(columns: "StructType") -> dict[str, str]:
    """Return the options that a table's columns carry; none for other columns."""
    for field in columns:
        if field.name in TICKS and KEY in field.metadata:
            return dict(field.metadata[KEY])
    return {}
