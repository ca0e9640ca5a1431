"""Kafka as a baseline: which jars are taken, and that a wrong one is never run."""

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmark.baselines.kafka_jars import CENTRAL, LIST, BadJar, class_path, listed
from benchmark.baselines.kafka_server import kafka
from benchmark.baselines.kafka_topics import Waiting
from benchmark.processes import Unavailable
from java import JavaMissing

JAR = b"a jar"
WANTED = f"org/apache/kafka/some/1.0/some-1.0.jar {hashlib.sha512(JAR).hexdigest()}\n"


def test_every_jar_of_the_list_has_a_checksum_and_a_name_of_its_own() -> None:
    jars = dict(listed(LIST.read_text()))
    assert all(len(bytes.fromhex(it)) == 64 for it in jars.values())
    names = [Path(it).name for it in jars]
    assert len(set(names)) == len(names) > 40
    assert any(it.startswith("kafka_2.13-") for it in names)


def test_a_jar_is_fetched_once(tmp_path: Path) -> None:
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return JAR

    (jar,) = class_path(tmp_path / "new", WANTED, fetch)
    assert (jar.read_bytes(), jar.name) == (JAR, "some-1.0.jar")
    assert class_path(tmp_path / "new", WANTED, fetch) == [jar]
    assert asked == [CENTRAL + "org/apache/kafka/some/1.0/some-1.0.jar"]


def test_of_several_at_once_one_fetches_a_jar(tmp_path: Path) -> None:
    asked, begun = list[str](), threading.Barrier(8)

    def fetch(url: str) -> bytes:
        asked.append(url)
        time.sleep(0.1)  # noqa: TID251 - a download takes a while
        return JAR

    def jars() -> list[Path]:
        begun.wait()
        return class_path(tmp_path, WANTED, fetch)

    with ThreadPoolExecutor(8) as pool:
        found = [it.result() for it in [pool.submit(jars) for _ in range(8)]]
    assert found == 8 * [[tmp_path / "some-1.0.jar"]]
    assert len(asked) == 1


def test_a_jar_with_another_checksum_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(BadJar, match=r"some-1\.0\.jar has another SHA-512"):
        class_path(tmp_path, WANTED, lambda _: b"another jar")
    assert list(tmp_path.iterdir()) == []


def test_a_jar_that_was_changed_in_the_folder_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "some-1.0.jar").write_bytes(b"changed")
    (jar,) = class_path(tmp_path, WANTED, lambda _: JAR)
    assert jar.read_bytes() == JAR


def test_a_machine_without_java_fetches_no_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("confluent_kafka")

    def missing() -> Path:
        raise JavaMissing("there is no Java >= 17; install it with: some-command")

    monkeypatch.setattr("benchmark.baselines.kafka_server.ensure_java", missing)
    with pytest.raises(Unavailable, match="some-command"), kafka(tmp_path, tmp_path / "jars"):
        pass
    assert not (tmp_path / "jars").exists()


def test_a_refused_message_and_one_without_an_answer_end_a_run() -> None:
    waiting = Waiting()
    waiting.count = 2
    waiting.answered(None, None)
    waiting.check(0)
    assert waiting.count == 1
    with pytest.raises(RuntimeError, match="1 messages without an answer"):
        waiting.check(1)
    waiting.answered("too large", None)
    with pytest.raises(RuntimeError, match="too large"):
        waiting.check(0)
