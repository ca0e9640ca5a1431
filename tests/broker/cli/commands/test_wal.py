"""`tidemark wal alter`, `status` and `abort` against a real broker and a real Kafka."""

import json
from collections.abc import Iterator
from pathlib import Path

import anyio.from_thread
import pytest
from benchmark.baselines.kafka_server import KafkaNode
from typer.testing import CliRunner

from broker.cli.main import app
from tests.broker.app.switching.switch_programs import copying_on
from tests.kafka_node import kafka_node, new_place
from tests.local_broker import local_broker

__all__ = ["kafka_node"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address


def wal(server: str, *arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["wal", *arguments, "--server", server])
    assert found.exit_code == code, found
    # Not what other clients of this process say on stderr meanwhile.
    return found.stderr if code else found.stdout


def test_a_switch_is_shown_until_it_has_ended(kafka_node: KafkaNode, server: str) -> None:
    assert wal(server, "status") == "the log is in segment files\n"
    place = new_place(kafka_node).shown
    told = wal(server, "alter", "--to", f"{place}?replication=1&sync=replicas")
    assert told.startswith(f"switching the log from segment files to {place}\n")
    assert "pchannels switched" in told
    assert told.endswith(f"done: the log is in {place}\n")
    assert wal(server, "status") == f"the log is in {place}; the newest switch: done\n"
    found = json.loads(wal(server, "status", "--json"))
    assert (found["stage"], found["under_way"], len(found["channels"])) == ("done", False, 1)


def test_a_switch_in_the_background_may_be_aborted(kafka_node: KafkaNode, server: str) -> None:
    place = f"{new_place(kafka_node).shown}?replication=1&sync=replicas"
    with copying_on():
        assert "see `tidemark wal status`" in wal(server, "alter", "--to", place, "--no-wait")
        assert "to kafka://" in wal(server, "status")
        assert wal(server, "abort").endswith("aborted: the log is in segment files\n")


def test_a_refusal_is_a_sentence_and_an_exit_code(server: str) -> None:
    assert "already" in wal(server, "alter", "--to", "segmented", code=1)
    assert "nothing to abort" in wal(server, "abort", code=1)
