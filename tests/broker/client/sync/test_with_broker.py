"""The blocking client against a real broker: every kind of call, threads, forks and Ctrl-C."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.client import Appended, Message
from broker.client.errors import BadTransaction, ClosedClient, ConnectionLost, NoSuchCollection
from broker.client.sync import Client, connect
from broker.client.sync.loop_thread import NAME
from tests.broker_process import BrokerProcess

PATIENCE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("sync") / "data", pchannels="3") as broker:
        yield broker.address


@pytest.fixture
def log(server: str) -> Iterator[Client]:
    with connect(server) as log:
        yield log


def threads() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it.name == NAME]


def payloads(log: Client, target: str) -> list[bytes]:
    return [it.payload for it in log.read(target, until="now").messages()]


def test_messages_are_appended_and_read_in_every_way(log: Client) -> None:
    log.collections.create("all", shards=1)
    (shard,) = log.collections.get("all").vchannels
    landed = log.append("all", b"one", key="k", properties={"from": "Ulm"})
    assert isinstance(landed, Appended)
    log.append_batch(shard, [b"two", b"three"])
    log.append_messages("all", [Message(b"four"), Message(b"five")])
    ticket = log.append_soon("all", Message(b"six"))
    assert ticket.result(PATIENCE_S).vchannel == shard
    assert ticket.done()
    assert not ticket.cancel()
    expected = [b"one", b"two", b"three", b"four", b"five", b"six"]
    assert payloads(log, "all") == expected
    assert [m.payload for b in log.read("all", until="now") for m in b.messages] == expected
    batches = log.read_batches("all", until="now")
    assert [it for batch in batches for it in batch.payloads] == expected
    with log.read("all") as reader:
        assert next(reader).messages[0].key == b"k"
    with pytest.raises(ClosedClient):
        next(reader)


def test_blocks_commit_and_roll_back_as_those_of_the_async_client(log: Client) -> None:
    log.collections.create("blocks", shards=2)
    names = log.collections.get("blocks").vchannels
    with log.txn(names[0]) as txn:
        txn.append(b"both")
        txn.append(b"or neither")
    with pytest.raises(BadTransaction):
        txn.append(b"late")
    with pytest.raises(ZeroDivisionError):
        roll_back(log, names[0])
    with log.stage("nightly", batch=1, part=0) as stage:
        stage.append("blocks", b"staged", key="k")
        part = stage.seal()
    assert not log.commit_batch("nightly", 1, [part]).already
    assert sorted(payloads(log, "blocks")) == [b"both", b"or neither", b"staged"]


def roll_back(log: Client, vchannel: str) -> None:
    with log.txn(vchannel) as txn:
        txn.append(b"never")
        raise ZeroDivisionError


def test_cuts_cursors_barriers_and_administration_block_too(log: Client) -> None:
    log.collections.create("ops", shards=2)
    log.append("ops", b"x")
    cut = log.cut("ops")
    assert [m.payload for m in log.read("ops", until=cut).messages()] == [b"x"]
    log.cursor("ops-reader").move(cut.tick, "ops")
    assert log.cursor("ops-reader").name == "ops-reader"
    assert log.cursor("ops-reader").get().tick == cut.tick
    assert "ops-reader" in [it.name for it in log.cursors.list()]
    barrier = log.barrier("gate")
    with barrier.join("worker") as peer, barrier.watch() as ticks:
        assert peer.report(cut.tick) == cut.tick
        assert peer.rejoined == 0
        assert next(ticks) == cut.tick
    assert log.admin.health().state
    assert log.broadcast.append("ops", b"everywhere").results
    with pytest.raises(NoSuchCollection):
        log.collections.get("nothing")


def test_a_commit_covers_what_the_program_has_and_not_the_rest_of_a_batch(log: Client) -> None:
    log.collections.create("committed")
    log.append_batch("committed", [b"1", b"2", b"3", b"4", b"5"])
    cursor = log.cursor("half-way")

    def rest() -> list[bytes]:
        return [it.payload for it in log.read("committed", start=cursor, until="now").messages()]

    reader = log.read("committed", start=cursor, until="now")
    messages = reader.messages()
    assert [next(messages).payload for _ in range(3)] == [b"1", b"2", b"3"]
    reader.commit()
    assert rest() == [b"4", b"5"]
    batches = log.read_batches("committed", start=cursor, until="now")
    for batch in batches:
        cursor.commit(batch)
    assert rest() == []
    assert batches.closed_tick > 0


def test_many_threads_may_use_one_client(log: Client) -> None:
    log.collections.create("threads", shards=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda it: log.append("threads", b"%d" % it), range(200)))
    assert sorted(map(int, payloads(log, "threads"))) == list(range(200))


async def test_it_works_on_a_thread_whose_loop_runs(server: str) -> None:
    with connect(server) as log:
        log.collections.create("notebook")
        log.append("notebook", b"cell")
        assert payloads(log, "notebook") == [b"cell"]


def test_no_thread_is_left_after_close_nor_without_a_server(server: str) -> None:
    before = threads()
    log = connect(server)
    assert len(threads()) == len(before) + 1
    reader = log.read(f"{log.admin.channels()[0].name}")
    log.close()
    log.close()
    assert threads() == before
    for call in (log.collections.list, reader.open, lambda: next(reader)):
        with pytest.raises(ClosedClient):
            call()
    log.abort()
    with pytest.raises(ConnectionLost):
        connect("127.0.0.1:1")
    assert threads() == before


def test_a_client_that_is_dropped_ends_its_thread(server: str) -> None:
    before = threads()
    log = connect(server)
    reader = log.read_batches(log.admin.channels()[0].name)
    reader.open()
    collections = log.collections
    del log, reader
    gc.collect()
    assert len(threads()) == len(before) + 1
    assert collections.list() is not None
    del collections
    gc.collect()
    assert threads() == before


def test_close_ends_a_call_of_another_thread(server: str) -> None:
    log = connect(server)
    reader = log.read_batches(log.admin.channels()[0].name, start="latest", types=[3])
    reader.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: [it for it in reader if len(it)])
        log.close()
        with pytest.raises(ClosedClient):
            waiting.result(PATIENCE_S)


INTERRUPTED = """
import signal, sys
from broker.client.sync import connect

# A shell starts background jobs with this signal ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
with connect(sys.argv[1]) as log:
    log.collections.create("interrupted")
    messages = log.read("interrupted").messages()
    try:
        print("reading", flush=True)
        next(messages)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    log.append("interrupted", b"still usable")
    print(next(messages).payload.decode(), flush=True)
"""

FORKED = """
import os, sys
from broker.client.errors import ForkedClient
from broker.client.sync import connect

log = connect(sys.argv[1])
child = os.fork()
if not child:
    try:
        log.collections.list()
    except ForkedClient:
        log.close()
        print("refused", flush=True)
    sys.exit(0)
os.waitpid(child, 0)
print(len(log.collections.list()) >= 0)
"""

NOT_WOKEN = """
import _thread, signal, sys, threading
from broker.client.sync import connect

signal.signal(signal.SIGINT, signal.default_int_handler)
with connect(sys.argv[1]) as log:
    log.collections.create("unwoken")
    messages = log.read("unwoken").messages()
    try:
        threading.Timer(0.2, _thread.interrupt_main).start()
        next(messages)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

FORGOTTEN = """
import sys
from broker.client import Message
from broker.client.sync import connect

log = connect(sys.argv[1])
log.collections.create("forgotten")
log.append_soon("forgotten", Message(b"under way"))
reader = log.read_batches("forgotten")
reader.open()
"""


@contextmanager
def script(text: str, server: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", text, server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
        env=os.environ,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def test_ctrl_c_cancels_a_call_and_leaves_the_client_usable(server: str) -> None:
    with script(INTERRUPTED, server) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "reading\n"
        program.send_signal(signal.SIGINT)
        out, complaint = program.communicate(timeout=PATIENCE_S)
    assert (out, complaint, program.returncode) == ("interrupted\nstill usable\n", "", 0)


def test_a_ctrl_c_that_wakes_no_waiting_call_is_seen_soon(server: str) -> None:
    """As one that comes just before the call waits: Python notes it, and the wait goes on."""
    with script(NOT_WOKEN, server) as program:
        out, complaint = program.communicate(timeout=PATIENCE_S)
    assert (out, complaint, program.returncode) == ("interrupted\n", "", 0)


def test_a_forked_child_is_refused_and_ends(server: str) -> None:
    with script(FORKED, server) as program:
        out, complaint = program.communicate(timeout=PATIENCE_S)
    assert (out, complaint, program.returncode) == ("refused\nTrue\n", "", 0)


def test_a_program_that_forgets_its_client_ends_with_what_it_appended(
    server: str, log: Client
) -> None:
    with script(FORGOTTEN, server) as program:
        out, complaint = program.communicate(timeout=PATIENCE_S)
    assert (out, complaint, program.returncode) == ("", "", 0)
    assert payloads(log, "forgotten") == [b"under way"]
