"""What is in force when settings are stored, read again or refused."""

import pytest

from broker.app.settings_in_force import LIVE_SETTINGS, SettingsInForce
from broker.model.master.live_config import StoredSettings
from broker.ports.master.live_settings import NeedsRestart
from broker.process_settings import Settings


def test_a_stored_setting_wins_until_it_is_unset() -> None:
    force = SettingsInForce(Settings(retention_ms=5))
    seen: list[int] = []
    force.listen(lambda settings: seen.append(settings.retention_ms))
    force.adopt(StoredSettings(3, {"retention_ms": "7"}))
    # SIGHUP with another file, while a value is stored.
    force.rebase(Settings(retention_ms=6))
    assert force.now.retention_ms == 7
    force.adopt(StoredSettings(4, {}))
    assert seen == [5, 7, 6]
    assert force.revision == 4


def test_a_value_of_another_release_is_left_out_and_shown() -> None:
    stored = StoredSettings(3, {"retention_ms": "7", "unheard_of": "1", "hold_bytes_max": "much"})
    force = SettingsInForce(Settings(), stored)
    assert force.now.retention_ms == 7
    assert force.now.hold_bytes_max == Settings().hold_bytes_max
    views = {it.name: it for it in force.views(stored, {"retention_ms": 3})}
    assert "must be a valid integer" in views["hold_bytes_max"].problem
    shown = views["retention_ms"]
    assert (shown.started_with, shown.stored, shown.in_force) == ("0", "7", "7")
    assert (shown.revision, shown.problem) == (3, "")
    assert set(views) == LIVE_SETTINGS


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention_ms", "-1", "greater than or equal to 0, not '-1'"),
        ("retention_ms", "soon", "valid integer"),
        ("retention_ms", "", "valid integer"),
        ("balance_policy", "fair", "must be vchannelFair or pchannel_count_fair, not 'fair'"),
        ("allow_rebalance", "perhaps", "valid boolean"),
        ("balance_interval_s", "nan", "greater than 0"),
        ("retention_s", "1", "did you mean 'retention_ms'"),
    ],
)
def test_the_rules_are_those_of_a_start(name: str, value: str, says: str) -> None:
    assert says in SettingsInForce(Settings()).problem(name, value)


def test_a_setting_that_needs_a_restart_says_so() -> None:
    with pytest.raises(NeedsRestart, match="set TIDEMARK_PCHANNELS, or pchannels in the"):
        SettingsInForce(Settings()).problem("pchannels", "3")


def test_the_default_of_every_live_setting_could_be_stored() -> None:
    force = SettingsInForce(Settings())
    for view in force.views(StoredSettings(), {}):
        assert force.problem(view.name, view.started_with) == ""
