"""What every test needs: the packages of this repository, importable.

Appended, never put first: where a wheel is installed (the gate), it is the wheel that is tested;
in a bare checkout it is the checkout. Tests import each other's fakes as `tests.<...>`.
"""

import faulthandler
import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "scripts")]

from broker.spark.gateway import Gateway  # noqa: E402 - as below
from broker.version import version_text  # noqa: E402 - of the wheel, else of this checkout
from schemas.compiled import compiled  # noqa: E402
from tests.long_test import told_when_long  # noqa: E402

structlog.configure(logger_factory=structlog.stdlib.LoggerFactory())
"""A broker in the test's own process must not write into what a command of the test prints."""

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""For Kafka and Spark, whose processes live for seconds: the compiler that is quick, not the one
whose code is. A start takes nearly half of the processor time less."""

for mark in ("WARN", "SLOW", "REFUSE"):
    os.environ.setdefault(f"TIDEMARK_DISK_{mark}_PERCENT", "100")
"""How much of the disk others use is not what brokers of tests are to be judged by."""

STDERR = pytest.StashKey[int]()
"""A descriptor of standard error, which is captured later."""

LONG_ROOMS = (
    "tests/spark/",
    "tests/chaos/",
    "tests/limits/",
    "tests/broker/cli/",
    "tests/broker/client/",
    "tests/scripts/",
)

settings.register_profile("long", max_examples=5000, deadline=None)
"""`--hypothesis-profile=long`, for properties that say nothing of their number of cases."""

settings.register_profile("gate", derandomize=True, deadline=None)
"""The same cases whenever the same code is tested: what passed here passes on a slower machine, and
so do the branches it runs. New cases are looked for by pytest as it is, and by the long profile."""

settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
"""A fifth of the gate's cases, for the minute before a commit."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Flags that make a short run a long one."""
    parser.addoption(
        "--rounds", type=int, default=5, help="how often the kill tests kill the broker"
    )
    parser.addoption(
        "--plays", type=int, default=50, help="how many random plays of actors are watched"
    )
    parser.addoption(
        "--races", type=int, default=150, help="how many races of old and new owners of a log"
    )
    parser.addoption(
        "--zombie-races", type=int, default=30, help="how many owners of a topic in Kafka take over"
    )
    parser.addoption(
        "--kafka-cluster", action="store_true", help="also the tests that need three Kafka nodes"
    )
    parser.addoption(
        "--broadcasts", type=int, default=60, help="how many broadcasts the tests of order make"
    )
    parser.addoption(
        "--ddl-histories", type=int, default=50, help="how many histories of changes are played"
    )
    parser.addoption(
        "--definitions", type=int, default=40, help="how many changes the test of kills makes"
    )
    parser.addoption(
        "--transform-kills", type=int, default=5, help="kills amid consume-transform-produce"
    )
    parser.addoption(
        "--rocksmq-kills", type=int, default=8, help="kills of a process with an embedded queue"
    )
    parser.addoption(
        "--switch-kills",
        type=int,
        default=8,
        help="kills amid switches of the log to Kafka and back",
    )
    parser.addoption(
        "--schemas",
        choices=("pure", "compiled"),
        default="pure",
        help="what the tests must run on: the scanners in Python, or compiled by mypyc",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test the wrong build: both behave the same, so no test would notice."""
    found = "compiled" if compiled() else "pure"
    if found != config.getoption("--schemas"):
        raise pytest.UsageError(f"these schemas are {found}; pass --schemas {found} to test them")
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tell what a test waits for, before `faulthandler_timeout` ends its process."""
    if not float(item.config.getini("faulthandler_timeout") or 0):
        return (yield)  # it is meant to take long
    with told_when_long(item.nodeid, item.config.stash[STDERR]):
        return (yield)


def pytest_report_header() -> str:
    """Which build is tested."""
    return f"tidemark {version_text()}"


@pytest.fixture(autouse=True)
def gateways_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the clients of Spark's readers and writers, which nobody stops.

    They would go on asking for a broker that is gone, and say so amid what later tests print.
    """
    opened: dict[int, Gateway] = {}
    connected = Gateway._connected

    def noted(gateway: Gateway) -> Any:
        opened[id(gateway)] = gateway
        return connected(gateway)

    monkeypatch.setattr(Gateway, "_connected", noted)
    yield
    for gateway in opened.values():
        with suppress(RuntimeError):  # its thread has ended by itself
            gateway.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are found: a quarter of that time would go into it.

    Each worker imports everything, nearly all of which stays. So later passes leave it out, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long rooms first, so that no worker is left with one when the others have finished."""
    items.sort(key=lambda item: (*(not item.nodeid.startswith(room) for room in LONG_ROOMS),))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files."""
    from tests.gate_workers import scheduler  # noqa: PLC0415 - only where xdist is installed

    return scheduler(config, log)


def pytest_unconfigure() -> None:
    """A thread that a failed test left running keeps Python from ending: name it, then end."""
    # Two minutes: at low priority beside the other lane an interpreter takes long to end, too.
    faulthandler.dump_traceback_later(120, exit=True)
