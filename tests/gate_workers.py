"""How the gate's workers share the tests, and what becomes of those of a worker that dies.

A worker ends when a test takes longer than `faulthandler_timeout`. That test has failed then, and
another worker goes on with the next.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
OWN_DRIVERS = tuple(
    f"{SPARK}test_{it}.py"
    for it in ("clusters", "exactly_once", "pages", "sink_commits", "tokens", "transfers")
)
"""They start Spark drivers of their own, or none, and need not wait for the shared session."""


class WholeFiles(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, as the brokers of their fixtures serve all tests of a file.

    One worker gets all tests that share a session of Spark.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file.startswith(SPARK) and file not in OWN_DRIVERS else file

    def remove_node(self, node: Any) -> str | None:
        """Leave out the test that a dead worker was at: it would hang the next worker, too.

        And files whose tests are all done. xdist would give them out again; who gets nothing to do
        with a file never asks for another one, and in the end nobody would.
        """
        files: dict[str, dict[str, bool]] = self.assigned_work[node]
        pending = [
            (it, tests) for tests in files.values() for it, done in tests.items() if not done
        ]
        crashed = None
        if pending:
            crashed, its_file = pending[0]
            its_file[crashed] = True
        for file in [it for it, tests in files.items() if all(tests.values())]:
            del files[file]
        super().remove_node(node)
        return crashed


class Deaths:
    """Names the test that a worker died at: its report comes only when all tests have ended."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """It is at once in what the gate prints."""
        self._reporter.ensure_newline()
        self._reporter.write_line(f"a worker died amid {crashitem}")
        self._reporter.flush()


def scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    """For the process that hands out tests, the only one that hears of all of them."""
    # In the order of the items. By itself it hands out files with many tests first, and what is
    # long, a few tests of real processes, last.
    config.option.loadscopereorder = False
    config.pluginmanager.register(Deaths(config.pluginmanager.get_plugin("terminalreporter")))
    return WholeFiles(config, log)
