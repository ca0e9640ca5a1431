"""Backups of running brokers: under load with two nodes, killed midway, and on a full disk."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio

from broker.client import Client, Message, connect
from broker.wal.inspect import dump
from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, run_forked
from tests.roles_processes import until

SHARDS = 4
GUARD_S = 240.0
LATER = 300
"""Appends after the backup that must not be in it."""


@dataclass
class Load:
    """What writers have been told is stored. `casts` is by number, `batches` the newest."""

    log: Client
    shards: tuple[str, ...]
    plain: int = 0
    pairs: int = 0
    casts: dict[int, int] = field(default_factory=dict)
    committed: Counter[str] = field(default_factory=Counter)
    collections: list[str] = field(default_factory=list)
    cursor: int = 0
    tick: int = 0

    async def run(self, tasks: anyio.abc.TaskGroup) -> None:
        for each in (self._plain, self._pairs, self._casts, self._collections, self._cursors):
            tasks.start_soon(each)
        tasks.start_soon(self._batches, "wide", SHARDS)
        tasks.start_soon(self._batches, "narrow", 1)

    async def is_mixed(self) -> bool:
        """Something of everything is stored."""
        return (
            min(self.plain, self.pairs, 4 * len(self.casts)) > 20
            and min(self.committed["wide"], self.committed["narrow"]) > 2
            and self.cursor > 0
        )

    def has_gone_on(self, plain: int, wide: int) -> Callable[[], Awaitable[bool]]:
        async def gone() -> bool:
            return self.plain > plain and self.committed["wide"] > wide

        return gone

    async def _plain(self) -> None:
        while True:
            landed = await self.log.append("flights", b"plain-%d" % (self.plain + 1), key=b"k")
            self.plain, self.tick = self.plain + 1, max(self.tick, landed.tick)

    async def _pairs(self) -> None:
        while True:
            number = self.pairs + 1
            async with self.log.txn(self.shards[number % SHARDS]) as txn:
                await txn.append(b"pair-%d" % number)
                await txn.append(b"pair-%d" % number)
            self.pairs = number

    async def _casts(self) -> None:
        """On all shards, and every third on one only: no cut could split that, but its record."""
        number = 0
        while True:
            number += 1
            targets = self.shards[:1] if number % 3 == 0 else self.shards
            done = await self.log.broadcast.append(targets, b"cast-%d" % number)
            self.casts[number] = done.id

    async def _batches(self, app: str, shards: int) -> None:
        while True:
            batch = self.committed[app] + 1
            async with self.log.stage(app, batch, 0, run=1) as stage:
                for shard in self.shards[:shards]:
                    await stage.append(shard, b"%s-%d" % (app.encode(), batch))
                part = await stage.seal()
            await self.log.commit_batch(app, batch, [part])
            self.committed[app] = batch

    async def _collections(self) -> None:
        while True:
            name = f"c{len(self.collections)}"
            await self.log.collections.create(name, shards=1)
            self.collections.append(name)
            await self.log.append(name, b"first of its own")
            await anyio.sleep(0.02)  # the pace of this writer, not a wait for anything

    async def _cursors(self) -> None:
        while True:
            cut = await self.log.cut("flights")
            await self.log.cursor("reader").move(cut.tick, "flights")
            self.cursor = cut.tick


def tidemark(*arguments: str, server: str = "") -> "subprocess.CompletedProcess[str]":
    return run_forked(
        [*COMMAND, *arguments],
        text=True,
        timeout=GUARD_S,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


async def under_load(
    server: str, backup: Callable[[], Awaitable[None]]
) -> tuple[Load, Load, set[str]]:
    """The load before the backup, after it and at the end, and the collections it began with."""
    async with connect(server) as log:
        flights = await log.collections.create("flights", shards=SHARDS)
        load = Load(log, tuple(flights.vchannels))
        # Open at the tick: neither may be seen in the restored folder.
        async with log.stage("open", 1, 0) as stage:
            await stage.append(load.shards[0], b"staged and not committed")
            await stage.seal()
        with anyio.fail_after(GUARD_S):
            async with anyio.create_task_group() as tasks:
                await load.run(tasks)
                await until(load.is_mixed)
                before = Load(log, load.shards, load.plain, load.pairs, dict(load.casts))
                before.committed = Counter(load.committed)
                before.cursor = load.cursor
                known = set(load.collections)
                await backup()
                await until(load.has_gone_on(load.plain + LATER, load.committed["wide"] + 2))
                tasks.cancel_scope.cancel()
        return before, load, known


def rows_up_to(wal: Path, tick: int | None) -> list[dict[str, Any]]:
    """The records of all logs, without where they lie."""
    found: list[dict[str, Any]] = []
    for row in dump(wal):
        assert not row.damage, row
        if tick is None or row.base_tick <= tick:
            found.append({k: v for k, v in asdict(row).items() if k not in ("offset", "group_id")})
    return found


async def payloads(log: Client, target: Iterable[str]) -> dict[str, list[bytes]]:
    """By vchannel, in order."""
    found: dict[str, list[bytes]] = {}
    for vchannel in target:
        async for batch in log.read(vchannel, start="all", until="now"):
            found.setdefault(vchannel, []).extend(it.payload for it in batch.messages)
    return found


async def test_a_restored_backup_has_everything_up_to_its_tick_and_nothing_after_it(
    tmp_path: Path,
) -> None:
    taken, answer = tmp_path / "backup", dict[str, Any]()

    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:

        async def backup() -> None:
            done = await anyio.to_thread.run_sync(
                lambda: tidemark("backup", str(taken), "--json", server=broker.address)
            )
            assert done.returncode == 0, done.stderr
            answer.update(json.loads(done.stdout))

        before, after, known = await under_load(broker.address, backup)
        broker.kill()
    tick = int(answer["tick"])
    assert not list((tmp_path / "data" / "wal").glob(".backup-*"))

    restored = tidemark("restore", str(taken), "--data-dir", str(tmp_path / "new"))
    assert restored.returncode == 0, restored.stderr
    # Record by record, before any broker has written to it.
    expected = rows_up_to(tmp_path / "data" / "wal", tick)
    assert rows_up_to(tmp_path / "new" / "wal", None) == expected
    assert expected
    assert any(row.base_tick > tick for row in dump(tmp_path / "data" / "wal"))

    with BrokerProcess(tmp_path / "new", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            with anyio.fail_after(GUARD_S):
                await until(_settled(log))
                await _judge_messages(log, before, after)
                await _judge_metadata(log, before, after, known, tick)
                await _judge_new_numbers(log, after)


def _settled(log: Client) -> Callable[[], Awaitable[bool]]:
    """What was recorded before the tick and had not begun is carried out after the restore."""

    async def nothing_is_under_way() -> bool:
        commits = [it for it in await log.commits.list() if it.under_way is not None]
        return not commits and not await log.broadcast.list()

    return nothing_is_under_way


async def _judge_messages(log: Client, before: Load, after: Load) -> None:
    found = await payloads(log, after.shards)
    counts = Counter(it for each in found.values() for it in each)
    plain = [it for each in found.values() for it in each if it.startswith(b"plain-")]
    assert plain == [b"plain-%d" % (it + 1) for it in range(len(plain))]
    assert before.plain <= len(plain) <= after.plain - LATER
    pairs = [int(it[5:]) for it in counts if it.startswith(b"pair-")]
    assert sorted(pairs) == list(range(1, len(pairs) + 1))
    assert len(pairs) >= before.pairs
    assert {counts[b"pair-%d" % it] for it in pairs} == {2}
    for number in [int(it[5:]) for it in counts if it.startswith(b"cast-")]:
        assert counts[b"cast-%d" % number] == (1 if number % 3 == 0 else SHARDS), number
    assert all(counts[b"cast-%d" % number] for number in before.casts)
    assert counts[b"staged and not committed"] == 0
    newest = {it.app: it.batch or 0 for it in await log.commits.list()}
    for app, shards in (("wide", SHARDS), ("narrow", 1)):
        batches = {it: n for it, n in counts.items() if it.startswith(b"%s-" % app.encode())}
        assert batches == {b"%s-%d" % (app.encode(), it + 1): shards for it in range(newest[app])}
        assert before.committed[app] <= newest[app] < after.committed["wide"] + after.committed[app]


async def _judge_metadata(
    log: Client, before: Load, after: Load, known: set[str], tick: int
) -> None:
    names = {it.name for it in await log.collections.list()}
    assert known <= names <= {"flights", *after.collections}
    assert len(names) < len(after.collections) + 1
    # A collection that was created before the tick is there, one with messages all the more.
    for name in names - {"flights"}:
        vchannels = (await log.collections.get(name)).vchannels
        assert (await payloads(log, vchannels)).get(vchannels[0], []) in ([], [b"first of its own"])
    cursor = await log.cursor("reader").get()
    assert before.cursor <= cursor.tick <= tick


async def _judge_new_numbers(log: Client, after: Load) -> None:
    landed = await log.append_messages("flights", [Message(b"new", key=b"k")])
    assert landed[0].tick > after.tick
    created = await log.collections.create("later", shards=1)
    assert created.id > 10 * len(after.collections) + 1000
    done = await log.broadcast.append(after.shards, b"cast-new")
    assert done.id > max(after.casts.values())
    newest = {it.app: it.batch or 0 for it in await log.commits.list()}["wide"]
    for batch, already in ((newest, True), (newest + 1, False)):
        async with log.stage("wide", batch, 0, run=2) as stage:
            await stage.append(after.shards[0], b"again")
            part = await stage.seal()
        assert (await log.commit_batch("wide", batch, [part])).already is already
    rows = await payloads(log, after.shards[:1])
    assert rows[after.shards[0]].count(b"again") == 1


MIB = 1 << 20
DISK = 'mount -t tmpfs -o size=4m tidemark-test "$0" && exec "$@"'


STUCK = """
import runpy, threading
from broker.backup import taking

def copy_front(source, target, size, progress):
    with source.open("rb") as log:
        target.write_bytes(log.read(size // 2))
    threading.Event().wait()

taking.copy_front = copy_front
runpy.run_module("broker", run_name="__main__")
"""
"""A command whose backup stays in the middle of its first file, however fast the disk is."""


def stuck(*arguments: str, server: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", STUCK, *arguments]
    return subprocess.Popen(command, env=os.environ | {"TIDEMARK_SERVER": server})


async def filled(server: str) -> None:
    """So much log that a copy takes a while."""
    async with connect(server) as log:
        await log.collections.create("flights", shards=1)
        for _ in range(16):
            await log.append_batch("flights", [os.urandom(MIB)] * 2)


async def test_a_backup_that_is_killed_is_no_backup_and_the_next_one_cleans_up(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", pchannels="2") as broker:
        await filled(broker.address)
        killed = stuck("backup", str(tmp_path / "one"), server=broker.address)

        async def copies() -> bool:
            assert killed.poll() is None, "it was done before it was killed"
            return any(it.stat().st_size for it in (tmp_path / "one").rglob("*.log"))

        await until(copies)
        killed.kill()
        killed.wait()
        left = list((tmp_path / "data" / "wal").glob(".backup-*"))
        assert len(left) == 1
        for refused in (
            tidemark("backup", str(tmp_path / "one"), "--verify"),
            tidemark("restore", str(tmp_path / "one"), "--data-dir", str(tmp_path / "new")),
        ):
            assert refused.returncode == 1
            assert "did not finish; delete it" in refused.stderr
        assert not (tmp_path / "new").exists()
        # The broker goes on, and so does the next backup, which removes the links of the first.
        done = tidemark("backup", str(tmp_path / "two"), server=broker.address)
        assert done.returncode == 0, done.stderr
        assert not list((tmp_path / "data" / "wal").glob(".backup-*"))
        assert tidemark("backup", str(tmp_path / "two"), "--verify").returncode == 0
        left[0].mkdir()
    # And so does the next start of a broker.
    with BrokerProcess(tmp_path / "data", pchannels="2"):
        assert not left[0].exists()


async def test_a_backup_and_a_restore_on_a_full_disk_fail_with_a_sentence_and_leave_nothing(
    tmp_path: Path,
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]

    def on_a_small_disk(*arguments: str, server: str = "") -> "subprocess.CompletedProcess[str]":
        listing = '"$@"; code=$?; ls -A "$0" >&2; exit $code'
        inner = ["sh", "-c", listing, str(small), sys.executable, "-m", "broker", *arguments]
        return subprocess.run(
            [*unshare, "sh", "-c", DISK, str(small), *inner],
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            env=os.environ | {"TIDEMARK_SERVER": server},
            check=False,
        )

    with BrokerProcess(tmp_path / "data", pchannels="2") as broker:
        await filled(broker.address)
        full = on_a_small_disk("backup", str(small / "one"), server=broker.address)
        assert full.returncode == 1, full.stderr
        # One sentence, and then the listing of the disk: nothing is left.
        assert full.stderr.count("\n") == 1, full.stderr
        assert "No space left on device" in full.stderr
        done = tidemark("backup", str(tmp_path / "one"), server=broker.address)
        assert done.returncode == 0, done.stderr
    full = on_a_small_disk("restore", str(tmp_path / "one"), "--data-dir", str(small / "new"))
    assert full.returncode == 1
    assert full.stderr.count("\n") == 1, full.stderr
    assert "bytes free; free some space" in full.stderr
