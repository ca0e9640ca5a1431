"""A disk that is really full: appends are refused, reads go on, and space is all it takes to heal.

The disk is a tmpfs in a mount namespace of the broker's own, so that it is gone with the broker.
Root may make one, and in most systems everybody may; where nobody may the test fails and says so.
"""

# ruff: noqa: ASYNC240 - nothing else of the test runs while it fills a disk

import errno
import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from broker.client import Client, OutcomeUnknown, Scanner, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import BrokerProcess
from tests.chaos.full_disk import failures, is_only_late

DISK_MIB = 24
PCHANNELS = pchannel_names("by-dev", 2)
VCHANNELS = tuple(NewVChannel(f"{name}_1v0") for name in PCHANNELS)
SETTINGS = {
    "pchannels": str(len(PCHANNELS)),
    "segment_bytes": str(4 << 20),
    "tail_bytes_max": str(64 << 10),
}
PAYLOAD_BYTES = 20_000
FULL_S = 4.0
"""Longer than the bound of the ticks lasts: the metadata has to meet the full disk as well."""

REFUSALS = (
    ("storage refused", "No space left"),
    ("no time ticks available", "database or disk is full"),
)
"""By the log, or, where a slow machine lets the ticks run out first, by the metadata beside it."""

HEAL_S_MAX = 120.0
HANG_S = 60.0
FILL_S_MAX = 240.0
SMALL_DISK = f'mount -t tmpfs -o size={DISK_MIB}m tidemark-test "$0" && exec "$@"'

told = logging.getLogger("tests.chaos")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With its data on a small disk that only it sees."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    inside = [*unshare, "sh", "-c", SMALL_DISK, str(tmp_path)]
    try:
        running = BrokerProcess(tmp_path / "data", inside=inside, **SETTINGS)
    except (OSError, RuntimeError) as error:
        pytest.fail(f"a small file system of its own is needed; run as root, on Linux: {error}")
    with running:
        yield running


async def test_a_full_disk_refuses_appends_serves_reads_and_heals_by_itself(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    filler = Path(f"/proc/{broker.pid}/root{tmp_path}/filler")
    acknowledged: dict[str, list[bytes]] = {vchannel: [] for vchannel in VCHANNELS}
    unknown: set[bytes] = set()
    async with connect(broker.address) as log, log.read(VCHANNELS[0]) as follower:
        for vchannel in VCHANNELS:
            for number in range(20):
                payload = payload_of(number, vchannel)
                await log.append(vchannel, payload, deadline_s=HANG_S)
                acknowledged[vchannel].append(payload)
        before = await terms(log)
        filled = fill(filler)
        refusals = [
            await append_until_refused(log, it, acknowledged[it], unknown) for it in VCHANNELS
        ]
        health = await log.admin.health()
        assert health.state == "degraded"
        assert {it.state for it in health.troubles} <= {"refusing", "unavailable", "assigning"}
        assert any("storage refused" in it.cause for it in health.troubles)
        began_s = anyio.current_time()
        while anyio.current_time() - began_s < FULL_S:
            for vchannel in VCHANNELS:
                found = [it for it in await everything(log, vchannel) if it not in unknown]
                assert found == acknowledged[vchannel]
        await take(follower, acknowledged[VCHANNELS[0]], unknown)
        now = await terms(log)
        assert all(now[name] <= before[name] + 1 for name in before), "once, with the reserve"

        filler.unlink()
        healed_s = anyio.current_time()
        for vchannel in VCHANNELS:
            payload = b"healed"
            await log.append(vchannel, payload, deadline_s=HEAL_S_MAX)
        healed_s = anyio.current_time() - healed_s
        for vchannel in VCHANNELS:
            found = await everything(log, vchannel)
            assert [it for it in found if it in set(acknowledged[vchannel])] == (
                acknowledged[vchannel]
            )
        after = await terms(log)
        for name, refusal in zip(PCHANNELS, refusals, strict=True):
            # Where the reserve has refused, the log did not fail, and goes on at its term.
            failed = REFUSALS[0][0] in str(refusal) and "kept for drops" not in str(refusal)
            assert after[name] > before[name] if failed else after[name] >= before[name]
        assert (await log.admin.health()).state == "healthy"
        told.info("%.1f MB filled; writable again after %.1f s", filled / 1e6, healed_s)
    assert broker.terminate() == 0


async def append_until_refused(
    log: Client, vchannel: str, acknowledged: list[bytes], unknown: set[bytes]
) -> TidemarkError:
    """What was allocated before may still be filled. `unknown`: may be stored, or not."""
    room = len(acknowledged) + (DISK_MIB << 20) // PAYLOAD_BYTES
    with anyio.fail_after(FILL_S_MAX):
        for number in itertools.count(1000):
            payload = payload_of(number, vchannel)
            try:
                await log.append(vchannel, payload, deadline_s=5.0)
            except TidemarkError as error:
                if isinstance(error, OutcomeUnknown):
                    unknown.add(payload)
                if names_refusal(error):
                    return error
                if not is_only_late(error):
                    raise
            else:
                acknowledged.append(payload)
                assert len(acknowledged) < room, "the disk is not full"
    raise AssertionError("a count does not end")


def payload_of(number: int, vchannel: str) -> bytes:
    return b"%d of %s " % (number, vchannel.encode()) + b"." * PAYLOAD_BYTES


def names_refusal(error: TidemarkError) -> bool:
    texts = [str(it) for it in failures(error)]
    return any(all(part in text for part in parts) for text in texts for parts in REFUSALS)


async def everything(log: Client, vchannel: str) -> list[bytes]:
    with anyio.fail_after(HANG_S):
        reader = log.read(vchannel, until="now")
        return [message.payload async for message in reader.messages()]


async def take(reader: Scanner, wanted: list[bytes], unknown: set[bytes]) -> None:
    found: list[bytes] = []
    with anyio.fail_after(HANG_S):
        while len(found) < len(wanted):
            payloads = [message.payload for message in (await anext(reader)).messages]
            found += [it for it in payloads if it not in unknown]
    assert found == wanted


async def terms(log: Client) -> dict[str, int]:
    return {channel.name: channel.term for channel in await log.admin.channels()}


def fill(filler: Path) -> int:
    """Write until there is no room for one more byte."""
    block = 1 << 20
    with filler.open("wb", buffering=0) as file:
        while block:
            try:
                file.write(bytes(block))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block //= 2
        return file.tell()
