"""Settings are checked where they come from, and a slip of the pen is told."""

import pytest
from pydantic import ValidationError

from broker.addresses import split_address
from broker.config import as_environment, misspelt
from broker.process_settings import Settings


def test_a_misspelt_variable_is_named_and_a_right_one_is_not() -> None:
    names = ["TIDEMARK_RETENTON_MS", "TIDEMARK_RETENTION_MS", "TIDEMARK_SERVER", "HOME"]
    assert misspelt(names) == ["TIDEMARK_RETENTON_MS"]


def test_every_setting_survives_the_environment_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(storage_version=3, delete_segments=True)
    for name, value in as_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_an_address_may_be_of_either_version() -> None:
    assert split_address("127.0.0.1:1") == ("127.0.0.1", 1)
    assert split_address("[::1]:19531") == ("::1", 19531)


@pytest.mark.parametrize("address", ["", "localhost", ":1", "h:x", "h:70000"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:19531"):
        split_address(address)


@pytest.mark.parametrize(
    "given",
    [
        {"pchannels": 0},
        {"cluster": "a_b"},
        {"listen": "nowhere"},
        {"drain_s": 0},
        {"storage_version": 1},
        {"storage_version": 4},
    ],
)
def test_a_setting_out_of_range_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**given)  # type: ignore[arg-type]
