"""Which tests may be left out: in CI only those whose parts `.ci/run` does not install."""

import re

import pytest

from tests.architecture.tree import ROOT
from tests.missing_part import missing_part

SKIPS = re.compile(r"\bpytest\.skip\(|\bskipif\(|\bmark\.skip\b")
MAY_SKIP = {
    "tests/missing_part.py": "decides",
    "tests/scripts/ops/test_container.py": "there is no container engine in CI",
    "tests/scripts/ops/test_ops_files.py": "systemd is a matter of the image",
    "tests/limits/test_go_producer.py": "so is Go's compiler",
    "tests/scripts/test_bench_processes.py": "Linux alone",
    "tests/broker/test_process_memory.py": "glibc alone",
    "tests/kafka_node.py": "slow, and asked for by an option",
    "tests/scripts/test_upgrade.py": "a clone may have no history, also in CI",
}


def test_without_ci_a_test_is_skipped_for_a_missing_part() -> None:
    for environment in ({}, {"CI": "false"}):
        with pytest.raises(pytest.skip.Exception, match="no etcd"):
            missing_part("no etcd", environment)


def test_in_ci_it_fails_and_says_what_is_missing() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^no etcd; CI=true, .*\.ci/run$"):
        missing_part("no etcd", {"CI": "true"})


def test_nothing_else_skips_tests_unseen() -> None:
    files = [it for it in (ROOT / "tests").rglob("*.py") if SKIPS.search(it.read_text())]
    found = {it.relative_to(ROOT).as_posix() for it in files}
    assert found == set(MAY_SKIP), "use missing_part, which fails in CI"


def test_ci_says_that_it_is_ci() -> None:
    assert 'export CI="${CI:-true}"' in (ROOT / ".ci" / "run").read_text()
