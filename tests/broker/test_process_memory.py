"""The memory of this very process, and of machines made of files."""

import mmap
from pathlib import Path

import pytest

from broker.process_memory import ProcessMemory


def test_a_process_takes_some_of_what_there_is() -> None:
    memory = ProcessMemory()
    before = memory.process_bytes()
    assert 1 << 20 < before < memory.total_bytes()
    # Mapped anew: the allocator might hand out what it has kept, which is in this number already.
    with mmap.mmap(-1, 64 << 20) as ballast:
        for page in range(0, len(ballast), mmap.PAGESIZE):
            ballast[page] = 1
        assert memory.process_bytes() - before > 32 << 20


def test_a_container_may_allow_less_than_the_machine_has(tmp_path: Path) -> None:
    whole = ProcessMemory(tmp_path).total_bytes()
    group = tmp_path / "sys/fs/cgroup"
    (group / "memory").mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert ProcessMemory(tmp_path).total_bytes() == whole
    (group / "memory.max").write_text("123456\n")
    (group / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert ProcessMemory(tmp_path).total_bytes() == 123456


def test_where_the_kernel_does_not_tell_the_peak_is_taken(tmp_path: Path) -> None:
    assert ProcessMemory(tmp_path).process_bytes() > 1 << 20
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/statm").write_text("nonsense")
    assert ProcessMemory(tmp_path).process_bytes() > 1 << 20


async def test_what_was_freed_between_blocks_in_use_is_returned_to_the_system() -> None:
    memory = ProcessMemory()
    blocks = [bytes(2000) for _ in range(40_000)]
    full, used = memory.process_bytes(), memory.used_bytes()
    if not used:
        pytest.skip("the allocator of this system does not say what is used of it")
    assert used < full
    del blocks[1::2], blocks[: len(blocks) // 2]
    kept = blocks[::10]
    blocks.clear()
    assert used - memory.used_bytes() > 60 << 20
    await memory.trim()
    assert full - memory.process_bytes() > 40 << 20
    assert len(kept) == 1000
