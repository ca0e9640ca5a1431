"""A request of changes is planned whole, or refused with everything that is wrong."""

import pytest

from broker.core.live_config.changes import (
    Plan,
    Problem,
    SettingRules,
    Unchangeable,
    Wrong,
    plan,
)
from broker.model.master.live_config import (
    CHANGES_MAX,
    ENTRIES_MAX,
    TOTAL_BYTES_MAX,
    VALUE_BYTES_MAX,
    ConfigChange,
    ConfigEntry,
)


def rule(name: str, value: str) -> Problem | None:
    if name == "nodes":
        return Problem(Wrong.RESTART, "nodes needs a restart")
    return None if value.isdecimal() else Problem(Wrong.BAD, f"{value!r} is no number")


RULES = SettingRules({"retention_ms", "nodes"}.__contains__, rule)
STORED = {
    "retention_ms": ConfigEntry("retention_ms", "5", 7),
    "app/colour": ConfigEntry("app/colour", "blue", 9),
}


def refused(*changes: ConfigChange) -> Unchangeable:
    with pytest.raises(Unchangeable) as caught:
        plan(STORED, changes, RULES)
    return caught.value


def test_changes_of_settings_and_of_free_keys_become_one_plan() -> None:
    changes = [
        ConfigChange("/Retention_ms", "6"),
        ConfigChange("app.size", "x"),
        ConfigChange("app/colour", None),
    ]
    found = plan(STORED, changes, RULES)
    assert found == Plan({"retention_ms": "6", "app/size": "x"}, ("app/colour",))
    assert found.settings
    assert not plan(STORED, changes[1:], RULES).settings
    assert plan(STORED, [ConfigChange("retention_ms", None)], RULES).settings


def test_everything_that_is_wrong_is_named_with_its_place() -> None:
    error = refused(
        ConfigChange("retention_ms", "x", origin="a.yaml:1"),
        ConfigChange("app/../x", "1", origin="a.yaml:2"),
        ConfigChange("app/fine", "1", origin="a.yaml:3"),
    )
    assert error.kind is Wrong.BAD
    assert str(error).startswith("a.yaml:1: 'x' is no number; a.yaml:2: key 'app/../x'")


def test_the_gravest_error_gives_its_kind() -> None:
    missing = ConfigChange("app/none", None)
    assert refused(missing).kind is Wrong.MISSING
    assert refused(missing, ConfigChange("nodes", "3")).kind is Wrong.RESTART
    conflict = ConfigChange("app/colour", "red", expected=8)
    assert refused(conflict).kind is Wrong.CONFLICT
    assert refused(conflict, ConfigChange("retention/ms", "3")).kind is Wrong.BAD


def test_an_expected_revision_is_compared() -> None:
    assert plan(STORED, [ConfigChange("app/colour", "red", expected=9)], RULES).puts
    assert plan(STORED, [ConfigChange("app/new", "red", expected=0)], RULES).puts
    assert "is at revision 9, not 0" in str(refused(ConfigChange("app/colour", "", expected=0)))
    assert "is at revision 0, not 3" in str(refused(ConfigChange("app/new", None, expected=3)))


def test_a_free_key_that_looks_like_a_setting_is_an_error_with_its_name() -> None:
    error = refused(ConfigChange("retention.ms", "3"))
    assert str(error) == "/retention/ms is no setting; did you mean retention_ms?"


def test_one_key_twice_is_refused_wherever_it_stands() -> None:
    twice = [ConfigChange("app/x", "1", origin="a:1"), ConfigChange("APP/x", "1", origin="b:2")]
    assert str(refused(*twice)) == "b:2: /app/x is given twice, first at a:1; keep one of them"
    plain = [ConfigChange("app/x", "1"), ConfigChange("app/x", None)]
    assert str(refused(*plain)) == "/app/x is given twice; keep one of them"


def test_values_entries_and_totals_have_limits() -> None:
    assert plan(STORED, [ConfigChange("app/x", "ä" * (VALUE_BYTES_MAX // 2))], RULES).puts
    assert "65,538 bytes" in str(refused(ConfigChange("app/x", "ä" * (VALUE_BYTES_MAX // 2 + 1))))
    assert "0 changes" in str(refused())
    many = [ConfigChange(f"app/{number}", "") for number in range(ENTRIES_MAX - 1)]
    assert "10,001 entries" in str(refused(*many))
    assert plan(STORED, [*many, ConfigChange("app/colour", None)], RULES).puts
    over = [ConfigChange(f"app/{number}", "") for number in range(CHANGES_MAX + 1)]
    assert "10,001 changes" in str(refused(*over))
    count = TOTAL_BYTES_MAX // VALUE_BYTES_MAX
    heavy = [ConfigChange(f"app/{number}", "x" * VALUE_BYTES_MAX) for number in range(count)]
    assert "delete some first" in str(refused(*heavy))
