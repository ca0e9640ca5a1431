"""`tidemark serve` over a log that something went wrong with since it was written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client import Client, Unrecoverable, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import BrokerProcess, failed_start

(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")
SETTINGS = {"pchannels": "1", "segment_bytes": "1048576", "tail_bytes_max": "65536"}
MESSAGES = 40
LARGE = 100_000
"""Bytes; forty of these fill three segments of 1 MiB and begin a fourth."""

HEADER_BYTES = 4096
FLIPPED = 100
"""So many bytes behind the middle of what is written: inside of some record's body."""


async def write_and_kill(data_dir: Path, size: int = 100) -> list[bytes]:
    """What was acknowledged by a broker that was killed."""
    payloads = [b"%d " % number + b"." * size for number in range(MESSAGES)]
    with BrokerProcess(data_dir, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            for payload in payloads:
                await log.append(VCHANNEL, payload)
    return payloads


async def everything(log: Client) -> list[bytes]:
    return [message.payload async for message in log.read(VCHANNEL, until="now").messages()]


async def read_into(found: list[bytes], log: Client) -> None:
    """Keeps what came before an error."""
    async for batch in log.read(VCHANNEL):
        found += [message.payload for message in batch.messages]


async def restart_and_read(data_dir: Path, **settings: str) -> list[bytes]:
    with BrokerProcess(data_dir, **SETTINGS, **settings) as broker:
        async with connect(broker.address) as log:
            await log.append(VCHANNEL, b"after")
            found = await everything(log)
        assert broker.terminate() == 0
    assert found.pop() == b"after"
    return found


def segments(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "wal" / PCHANNEL).glob("*.log"))


def change(file: Path, how: Callable[[bytearray, int], None]) -> None:
    """`how` gets the bytes and where the written part of them ends."""
    data = bytearray(file.read_bytes())
    how(data, len(data.rstrip(b"\0")))
    file.write_bytes(data)


def flip_in_the_middle(data: bytearray, end: int) -> None:
    data[HEADER_BYTES + (end - HEADER_BYTES) // 2 + FLIPPED] ^= 1


async def test_a_torn_last_record_is_cut_and_everything_before_it_is_there(tmp_path: Path) -> None:
    payloads = await write_and_kill(tmp_path)

    def tear(data: bytearray, end: int) -> None:
        data[data.rindex(payloads[-1]) + 3 :] = bytes(len(data) - data.rindex(payloads[-1]) - 3)

    change(segments(tmp_path)[-1], tear)
    assert await restart_and_read(tmp_path) == payloads[:-1]


async def test_a_flipped_bit_keeps_the_broker_from_starting_and_is_named(tmp_path: Path) -> None:
    await write_and_kill(tmp_path)
    (segment,) = segments(tmp_path)
    change(segment, flip_in_the_middle)
    before = segment.read_bytes()
    complaint = failed_start(tmp_path, **SETTINGS)
    assert f"cannot open {segment}: damaged at byte " in complaint
    assert "TIDEMARK_SKIP_DAMAGE=true" in complaint
    assert segment.read_bytes() == before


async def test_told_to_skip_damage_the_broker_reports_it_and_serves_the_rest(
    tmp_path: Path,
) -> None:
    payloads = await write_and_kill(tmp_path)
    change(segments(tmp_path)[0], flip_in_the_middle)
    with BrokerProcess(tmp_path, **SETTINGS, skip_damage="true") as broker:
        async with connect(broker.address) as log:
            health = await log.admin.health()
        assert broker.terminate() == 0
    assert [(it.pchannel, it.skipped) for it in health.damages] == [(PCHANNEL, True)]
    assert health.state == "healthy"  # whoever told it to skip knows
    found = await restart_and_read(tmp_path, skip_damage="true")
    lost = [payload for payload in payloads if payload not in found]
    assert found == [payload for payload in payloads if payload in found]
    assert len(lost) == 1


async def test_a_flipped_bit_in_an_old_segment_is_told_to_the_reader_who_meets_it(
    tmp_path: Path,
) -> None:
    payloads = await write_and_kill(tmp_path, LARGE)
    oldest = segments(tmp_path)[0]
    change(oldest, flip_in_the_middle)
    with BrokerProcess(tmp_path, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            found: list[bytes] = []
            with pytest.raises(Unrecoverable, match=f"{oldest.name}: damaged at byte "):
                await read_into(found, log)
            assert 0 < len(found) < MESSAGES
            assert found == payloads[: len(found)]
            await log.append(VCHANNEL, b"writes go on")
            health = await log.admin.health()
        assert health.state == "degraded"
        (damage,) = health.damages
        assert (damage.pchannel, damage.file) == (PCHANNEL, f"{PCHANNEL}/{oldest.name}")
        assert (damage.offset > 0, damage.times > 0, damage.skipped) == (True, True, False)
        assert "checksum" in damage.reason or "lengths" in damage.reason
        assert broker.terminate() == 0


async def test_an_unknown_format_version_is_refused_and_both_are_named(tmp_path: Path) -> None:
    await write_and_kill(tmp_path)
    (segment,) = segments(tmp_path)

    def become_version_7(data: bytearray, _end: int) -> None:
        data[8:12] = (7).to_bytes(4, "little")

    change(segment, become_version_7)
    complaint = failed_start(tmp_path, **SETTINGS)
    assert f"{segment}: format version 7; this program reads version 2" in complaint


async def test_missing_indexes_are_rebuilt(tmp_path: Path) -> None:
    payloads = await write_and_kill(tmp_path, LARGE)
    assert await restart_and_read(tmp_path) == payloads
    indexes = list((tmp_path / "wal" / PCHANNEL).glob("*.index"))
    assert len(indexes) > 3
    for index in indexes:
        index.unlink()
    assert (await restart_and_read(tmp_path))[:MESSAGES] == payloads
    assert {index for index in indexes if index.exists()}
