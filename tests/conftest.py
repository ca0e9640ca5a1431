"""What every test needs: the packages of this repository, importable.

Appended, never put first: where a wheel is installed (the gate), it is the wheel that is tested;
in a bare checkout it is the checkout. Tests import each other's fakes as `tests.<...>`.
"""

import faulthandler
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "scripts")]

structlog.configure(logger_factory=structlog.stdlib.LoggerFactory())
"""A broker in the test's own process must not write into what a command of the test prints."""

settings.register_profile("long", max_examples=5000, deadline=None)
"""`--hypothesis-profile=long`, for properties that say nothing of their number of cases."""

settings.register_profile("gate", derandomize=True, deadline=None)
"""The same cases whenever the same code is tested: what passed here passes on a slower machine, and
so do the branches it runs. New cases are looked for by pytest as it is, and by the long profile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Flags that make a short run a long one."""
    parser.addoption(
        "--rounds", type=int, default=5, help="how often the kill tests kill the broker"
    )
    parser.addoption(
        "--races", type=int, default=150, help="how many races of old and new owners of a log"
    )
    parser.addoption(
        "--broadcasts", type=int, default=60, help="how many broadcasts the tests of order make"
    )


def pytest_unconfigure() -> None:
    """A thread that a failed test left running keeps Python from ending: name it, then end."""
    faulthandler.dump_traceback_later(20, exit=True)
