"""A disk in memory that tears, drops, fails, fills up and lies: the files port for crash tests.

Every change is a numbered step. A step may fail with a given errno, or to be the one in which
the power is cut; `after_power_cut` is the disk that the next start finds. Names and bytes count as
durable only when they were synced; of the rest, chance decides, down to the byte.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_SECTOR = 512


class PowerCut(Exception):
    """The machine is off. Every later use of its disk says so, too."""


@dataclass(eq=False, slots=True)
class Inode:
    """One file's bytes: as programs see them, as the disk holds them, and what lies between."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    links: int = 1

    def change(self, offset: int, data: bytes | None) -> None:
        """Write `data`, or cut to `offset` bytes when it is None."""
        put(self.cached, offset, data)
        self.unsynced.append((offset, data))

    def settle(self) -> None:
        for offset, data in self.unsynced:
            put(self.durable, offset, data)
        self.unsynced.clear()

    def settle_by_chance(self, chance: random.Random) -> None:
        for offset, data in self.unsynced:
            for at, piece in survivors(offset, data, chance):
                put(self.durable, at, piece)
        self.unsynced.clear()

    def forget(self) -> None:
        self.cached[:] = self.durable
        for offset, data in self.unsynced:
            put(self.cached, offset, data)


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of a folder that is not durable yet."""

    folder: str
    gone: str | None
    new: str | None
    inode: Inode | None


class FaultyFiles:
    """Implements `ports.files.Files`. `steps` counts the changes so far."""

    def __init__(self, *, seed: int = 0, capacity: int | None = None, lies: bool = False) -> None:
        self.chance = random.Random(seed)
        self.capacity, self.lies = capacity, lies
        self.steps = 0
        self.cut_at: int | None = None
        self.faults: dict[tuple[str, int], int] = {}
        self.counts: dict[str, int] = {}
        self.on_step: Callable[[str, str], None] = lambda _kind, _path: None
        self.on_read: Callable[[str], None] = lambda _path: None
        self.dead = False
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.pending: list[NameChange] = []
        self.folders: set[str] = set()

    def after_power_cut(self) -> "FaultyFiles":
        """The disk as found when the power comes back."""
        self.dead = True
        found = FaultyFiles(seed=self.chance.randrange(1 << 30), capacity=self.capacity)
        names = dict(self.durable_names)
        for change in self.pending:
            if self.chance.random() < 0.5:
                apply(names, change)
        for inode in {id(i): i for i in (*self.names.values(), *names.values())}.values():
            inode.settle_by_chance(self.chance)
        found.names = {p: copy_of(i.durable) for p, i in names.items()}
        found.durable_names = dict(found.names)
        found.folders = set(self.folders)
        return found

    def after_kill(self) -> "FaultyFiles":
        """The disk as found when only the process died."""
        self.dead = True
        found = FaultyFiles(seed=self.chance.randrange(1 << 30), capacity=self.capacity)
        found.names = {path: copy_of(inode.cached) for path, inode in self.names.items()}
        found.durable_names = dict(found.names)
        found.folders = set(self.folders)
        return found

    def step(self, kind: str, path: str) -> None:
        """One change begins. Raises the error set for it."""
        self.alive()
        self.on_step(kind, path)
        self.alive()
        self.steps += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        code = self.faults.get((kind, self.counts[kind]))
        if self.steps == self.cut_at:
            self.dead = True
            raise PowerCut
        if code is not None:
            raise OSError(code, os.strerror(code), path)

    def alive(self) -> None:
        if self.dead:
            raise PowerCut

    def room_for(self, growth: int) -> None:
        used = sum(len(inode.cached) for inode in self.names.values())
        if self.capacity is not None and growth > 0 and used + growth > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def free_bytes(self) -> int:
        self.alive()
        used = sum(len(inode.cached) for inode in self.names.values())
        return 1 << 40 if self.capacity is None else self.capacity - used

    def refuse_missing(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def open(self, path: str, *, create: bool = False) -> "FaultyFile":
        self.alive()
        if create:
            self.step("create", path)
            if path in self.names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.rename_entry(None, path, Inode())
        self.refuse_missing(path)
        return FaultyFile(self, path, self.names[path])

    def list(self, folder: str) -> Sequence[str]:
        self.alive()
        inside = (p for p in self.names if p.rpartition("/")[0] == folder)
        return sorted(p.rpartition("/")[2] for p in inside)

    def make_folder(self, folder: str) -> None:
        if folder not in self.folders:
            self.step("make_folder", folder)
            self.folders.add(folder)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        self.refuse_missing(path)
        self.rename_entry(path, None, None)

    def remove_folder(self, folder: str) -> None:
        self.step("remove_folder", folder)
        if self.list(folder):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), folder)
        self.sync_folder(folder)
        self.folders.discard(folder)

    def rename(self, old: str, new: str) -> None:
        self.step("rename", new)
        self.refuse_missing(old)
        self.rename_entry(old, new, self.names[old])

    def replace(self, path: str, data: bytes) -> None:
        inode = Inode(bytearray(data), bytearray(data))
        self.step("replace", path)
        self.room_for(len(data))
        self.rename_entry(None, path, inode)
        self.sync_folder(path.rpartition("/")[0])

    def sync_folder(self, folder: str) -> None:
        self.step("sync_folder", folder)
        if self.lies:
            return
        for change in self.pending:
            if change.folder == folder:
                apply(self.durable_names, change)
        self.pending = [change for change in self.pending if change.folder != folder]

    def rename_entry(self, gone: str | None, new: str | None, inode: Inode | None) -> None:
        for path in (gone, new):
            if path in self.names and (path == new or new is None):
                self.names[path].links -= 1
        change = NameChange((gone or new or "").rpartition("/")[0], gone, new, inode)
        apply(self.names, change)
        self.pending.append(change)


class FaultyFile:
    """Implements `ports.files.File`. After a failed write or sync it refuses to be written."""

    def __init__(self, files: FaultyFiles, path: str, inode: Inode) -> None:
        self._files, self._path, self.inode = files, path, inode
        self._failed = False
        self._closed = False

    def write_durable(self, offset: int, parts: Sequence[bytes]) -> None:
        self.write(offset, parts)
        self.sync()

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """In two halves, so that others may see the first without the second."""
        data = b"".join(parts)
        half = self._files.chance.randrange(len(data) + 1)
        self._write(offset, data[:half])
        self._write(offset + half, data[half:])

    def _write(self, offset: int, data: bytes) -> None:
        self._usable()
        try:
            self._files.step("write", self._path)
            self._files.room_for(offset + len(data) - len(self.inode.cached))
        except (OSError, PowerCut):
            torn = data[: self._files.chance.randrange(len(data) + 1)]
            self.inode.change(offset, torn)
            self._failed = True
            raise
        self.inode.change(offset, data)

    def sync(self) -> None:
        self._usable()
        try:
            self._files.step("sync", self._path)
        except OSError:
            self._failed = True
            self.inode.settle_by_chance(self._files.chance)
            raise
        if not self._files.lies:
            self.inode.settle()

    def read(self, offset: int, size: int) -> bytes:
        self._files.alive()
        self._files.on_read(self._path)
        assert not self._closed, f"{self._path} is read after it was closed"
        return bytes(self.inode.cached[offset : offset + size])

    def forget(self) -> None:
        self.inode.forget()

    def allocate(self, size: int) -> None:
        self._usable()
        self._files.step("allocate", self._path)
        self._files.room_for(size - len(self.inode.cached))
        if size > len(self.inode.cached):
            self.inode.change(len(self.inode.cached), bytes(size - len(self.inode.cached)))
        self.inode.settle()

    def truncate(self, size: int) -> None:
        self._usable()
        self._files.step("truncate", self._path)
        self.inode.change(size, None)

    def size(self) -> int:
        self._files.alive()
        return len(self.inode.cached)

    def linked(self) -> bool:
        self._files.alive()
        return self.inode.links > 0

    def close(self) -> None:
        self._closed = True

    def _usable(self) -> None:
        assert not self._failed, f"{self._path} is used for writing again after it failed"
        assert not self._closed, f"{self._path} is used after it was closed"


class AtOnce(Executor):
    """Does background work in the foreground, so that a run is a sequence of steps."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as failure:  # noqa: BLE001 - as an executor does
            future.set_exception(failure)
        return future


def put(target: bytearray, offset: int, data: bytes | None) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    if data is None:
        del target[offset:]
    else:
        target[offset : offset + len(data)] = data


def apply(names: dict[str, Inode], change: NameChange) -> None:
    if change.gone is not None:
        names.pop(change.gone, None)
    if change.new is not None and change.inode is not None:
        names[change.new] = change.inode


def copy_of(data: bytearray) -> Inode:
    return Inode(bytearray(data), bytearray(data))


def survivors(
    offset: int, data: bytes | None, chance: random.Random
) -> list[tuple[int, bytes | None]]:
    """What of one unsynced write reaches the disk: all, nothing, a prefix, or some sectors."""
    fate = chance.randrange(4)
    if fate == 0:
        return []
    if fate == 1 or data is None:
        return [(offset, data)]
    if fate == 2:
        return [(offset, data[: chance.randrange(len(data) + 1)])]
    first = -offset % _SECTOR
    cuts = [0, *range(first, len(data), _SECTOR), len(data)]
    pieces = pairwise(cuts)
    return [(offset + a, data[a:b]) for a, b in pieces if chance.random() < 0.5]
