"""Names of partitions, fields, indexes and databases."""

from collections.abc import Callable

import pytest

from broker.core.master.table_names import (
    checked_database,
    checked_field,
    checked_index,
    checked_partition,
    shown,
)
from broker.model.failure import Refused, StreamingCode


@pytest.mark.parametrize(
    ("checked", "name"),
    [
        (checked_partition, "2026_$x"),
        (checked_partition, "_default"),
        (checked_field, "_a1"),
        (checked_index, "_default_idx"),
        (checked_database, "air"),
        (checked_partition, "p" * 255),
    ],
)
def test_a_good_name_stays_as_it_is(checked: Callable[[str], str], name: str) -> None:
    assert checked(name) == name


@pytest.mark.parametrize("name", ["", "default"])
def test_the_default_database_has_one_form(name: str) -> None:
    assert checked_database(name) == ""


@pytest.mark.parametrize(
    ("checked", "name"),
    [
        (checked_partition, ""),
        (checked_partition, "../p"),
        (checked_partition, " p"),
        (checked_partition, "p" * 256),
        (checked_field, "a$"),
        (checked_field, "1a"),
        (checked_index, "a/b"),
        (checked_database, "a.b"),
        (checked_database, "ä"),
    ],
)
def test_a_bad_name_is_refused_with_the_name(checked: Callable[[str], str], name: str) -> None:
    with pytest.raises(Refused) as caught:
        checked(name)
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    assert shown(name)[:70] in caught.value.refusal.cause


def test_a_long_name_is_shown_shortened() -> None:
    assert len(shown("x" * 1000)) < 90
