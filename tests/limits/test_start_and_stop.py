"""How a broker process begins and ends, and the one sentence it says when it cannot begin."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from broker.client import Scanner, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import READY_S_MAX, FreshBrokerProcess, failed_start

STOP_S_MAX = 30.0
"""Far above the 5 s that a quiet machine needs: what a stop may wait for is added up in
`tests/broker/app/test_stop_budget.py`."""
LOAD_S_MAX = 60.0
IN_FLIGHT = 200
ACKNOWLEDGED = 2000
(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")


def test_a_second_broker_on_the_same_folder_names_the_first(tmp_path: Path) -> None:
    with FreshBrokerProcess(tmp_path, pchannels="1") as first:
        complaint = failed_start(tmp_path)
        assert f"data folder {tmp_path} is in use by process {first.pid}" in complaint
        assert first.terminate() == 0


def test_a_taken_port_is_named_and_the_folder_stays_untouched(tmp_path: Path) -> None:
    with FreshBrokerProcess(tmp_path / "one", pchannels="1") as first:
        complaint = failed_start(tmp_path / "two", listen=first.address)
        assert f"{first.address} is in use" in complaint
        assert not (tmp_path / "two").exists()


def test_fewer_pchannels_than_before_are_refused(tmp_path: Path) -> None:
    with FreshBrokerProcess(tmp_path, pchannels="3") as broker:
        assert broker.terminate() == 0
    complaint = failed_start(tmp_path, "--pchannels", "2")
    assert "has 3 pchannels, and this start asks for 2" in complaint
    assert "at least 3" in complaint


async def test_more_pchannels_than_before_are_served(tmp_path: Path) -> None:
    with FreshBrokerProcess(tmp_path, pchannels="1") as broker:
        assert broker.terminate() == 0
    with FreshBrokerProcess(tmp_path, pchannels="3") as broker:
        async with connect(broker.address) as log:
            assert [it.state for it in await log.admin.channels()] == ["assigned"] * 3


def test_another_cluster_name_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with FreshBrokerProcess(tmp_path, pchannels="1") as broker:
        assert broker.terminate() == 0
    complaint = failed_start(tmp_path, "--cluster", "other", "--pchannels", "1")
    assert "belongs to another cluster" in complaint
    assert "by-dev" in complaint


def test_signals_after_the_first_change_nothing(tmp_path: Path) -> None:
    """Ctrl-C reaches a whole process group, and who started the broker then stops it as well."""
    with FreshBrokerProcess(tmp_path / "data", pchannels="4") as broker:
        assert broker.stop_again_and_again() == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "retention_byte = 5",
            "'retention_byte' in tidemark.toml is not a setting; did you mean 'retention_bytes'?",
        ),
        ("pchannels = 0", "setting pchannels: must be greater than 0, not 0 (tidemark.toml)"),
    ],
)
def test_a_setting_that_is_unknown_or_out_of_bounds_is_named(
    line: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "tidemark.toml").write_text(line + "\n")
    checkout = str(Path(__file__).resolve().parents[2])
    ended = subprocess.run(
        [sys.executable, "-m", "broker", "serve", "--data-dir", str(tmp_path / "data")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": checkout},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == f"tidemark: {sentence}\n"
    assert not (tmp_path / "data").exists()


async def test_sigterm_under_load_drains_and_loses_nothing(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    enough = anyio.Event()

    async def append_until_it_stops(worker: int) -> None:
        with contextlib.suppress(TidemarkError):
            for number in itertools.count():
                payload = b"%d/%d" % (worker, number)
                await log.append(VCHANNEL, payload, deadline_s=LOAD_S_MAX)
                acknowledged.append(payload)
                if len(acknowledged) > ACKNOWLEDGED:
                    enough.set()

    with FreshBrokerProcess(tmp_path, pchannels="1") as broker:
        async with connect(broker.address) as log, anyio.create_task_group() as tasks:
            tasks.start_soon(read_for_ever, log.read(VCHANNEL))
            async with anyio.create_task_group() as load:
                for worker in range(IN_FLIGHT):
                    load.start_soon(append_until_it_stops, worker)
                # An error ends a worker: with none left, nobody would say that it is enough.
                with anyio.fail_after(LOAD_S_MAX):
                    await enough.wait()
                began_s = anyio.current_time()
                assert await anyio.to_thread.run_sync(broker.terminate) == 0
                assert anyio.current_time() - began_s < STOP_S_MAX
                load.cancel_scope.cancel()
            tasks.cancel_scope.cancel()
    with FreshBrokerProcess(tmp_path, pchannels="1") as broker:
        async with connect(broker.address) as log:
            stored = {it.payload async for it in log.read(VCHANNEL, until="now").messages()}
    assert set(acknowledged) <= stored


async def read_for_ever(reader: Scanner) -> None:
    async for _ in reader:
        pass


@pytest.mark.parametrize("after", ["tidemark.lock", "meta.sqlite", "wal"])
def test_sigterm_during_the_start_ends_it_in_order(after: str, tmp_path: Path) -> None:
    """The moment is when something appears in the folder, which the start makes one by one."""
    command = [sys.executable, "-m", "broker", "serve", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--pchannels", "64"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as starting:
        try:
            while not (tmp_path / after).exists():
                assert starting.poll() is None
            starting.send_signal(signal.SIGTERM)
            _, complaint = starting.communicate(timeout=READY_S_MAX)
        finally:
            # One that hangs would write into pipes that nobody reads, and never end.
            starting.kill()
    assert starting.returncode == 0, complaint
    assert "Traceback" not in complaint
