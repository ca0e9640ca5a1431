"""Names of partitions, fields and databases: Milvus's rules, checked before they become keys."""

import re
from typing import Final

from broker.model.failure import Refused, invalid_argument
from broker.model.master.table_change import DEFAULT_DATABASE

NAME_LENGTH_MAX: Final = 255
_PARTITION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$]*")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def checked_database(name: str) -> str:
    """The name of a database as requests and records have it: "" for the default one. Refused."""
    if name in ("", DEFAULT_DATABASE):
        return ""
    return _checked("database", name, _FIELD, "a letter or '_'", "letters, digits and '_'")


def checked_partition(name: str) -> str:
    """The name; Refused when no partition can have it."""
    return _checked(
        "partition", name, _PARTITION, "a letter, digit or '_'", "letters, digits, '_' and '$'"
    )


def checked_field(name: str) -> str:
    """The name; Refused when no field can have it."""
    return _checked("field", name, _FIELD, "a letter or '_'", "letters, digits and '_'")


def checked_index(name: str) -> str:
    """The name; Refused when no index can have it."""
    return _checked("index", name, _FIELD, "a letter or '_'", "letters, digits and '_'")


def _checked(what: str, name: str, form: re.Pattern[str], first: str, others: str) -> str:
    if len(name) > NAME_LENGTH_MAX:
        raise _refused(f"{what} name {shown(name)} has {len(name)} characters", NAME_LENGTH_MAX)
    if not form.fullmatch(name):
        raise invalid_argument(
            f"{what} name {shown(name)} must start with {first} and contain only {others}"
        )
    return name


def _refused(cause: str, most: int) -> Refused:
    return invalid_argument(f"{cause}; at most {most} are allowed")


def shown(name: str) -> str:
    """A name for an error text: quoted, escaped, and shortened."""
    return repr(name) if len(name) <= 80 else repr(name[:77]) + "…"
