"""The configuration as a program changes it, against a real broker; and what it changes there."""

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from broker.client import Client, connect
from broker.client.errors import (
    InvalidArgument,
    OutcomeUnknown,
    ServerFailed,
    TidemarkError,
    UnknownRefusal,
)
from broker.client.master.cluster_config import (
    ClusterConfig,
    ConfigConflict,
    NoSuchConfigKey,
    SettingNeedsRestart,
)
from broker.client.master.config_files import BadConfigFile
from broker.client.net.connection import Connection
from broker.model.failure import StreamingCode
from tests.local_broker import local_broker
from tests.roles_processes import until

REFERENCE = """\
a:
  suba1: v1
  suba2: v2
  suba3: {subsuba1: v3, subsuba2: v4}
master.address: localhost
proxy.timezone: UTC+8
"""


async def keys(log: Client, prefix: str) -> list[str]:
    return [it.key for it in await log.config.get_by_prefix(prefix)]


async def test_a_file_is_loaded_and_found_by_key_and_by_prefix(tmp_path: Path) -> None:
    path = tmp_path / "milvus.yaml"
    path.write_text(REFERENCE)
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        await log.config.load(path)
        found = await log.config.get(["/a/suba1", "/a/suba3/subsuba2", "/master/address"])
        assert [it.value for it in found] == ["v1", "v4", "localhost"]
        assert len(await keys(log, "/a")) == 4
        assert await keys(log, "/ma") == ["/master/address"]
        assert await keys(log, "/config") == []
        assert len(await keys(log, "/")) == 6
        with pytest.raises(NoSuchConfigKey, match="/pulsar/ip"):
            await log.config.get(["/a/suba1", "/pulsar/ip"])


async def test_of_a_file_with_one_bad_line_nothing_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "prod.yaml"
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        for text, kind, says in (
            ("app.x: 1\nretention_ms: 5\ntick_interval_ms: 0\n", InvalidArgument, "greater"),
            ("app.x: 1\nretention_ms: 5\npchannels: 3\n", SettingNeedsRestart, "restart"),
            ("app.x: 1\nretention_ms: 5\nApp.X: 2\n", InvalidArgument, "first at .*yaml:1"),
            ("app.x: 1\nretention_ms: 5\nretention.ms: 2\n", InvalidArgument, "did you mean"),
            ("app.x: 1\nretention_ms: 5\na: b: c\n", BadConfigFile, "not allowed"),
        ):
            path.write_text(text)
            with pytest.raises(kind, match=rf"prod\.yaml:3: .*{says}"):
                await log.config.load(path)
        assert await log.config.get_by_prefix() == []
        assert broker.settings.now.retention_ms == 0


async def test_of_two_concurrent_changes_that_expect_a_revision_one_wins(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        outcomes: list[TidemarkError | None] = []

        async def change(value: str) -> None:
            try:
                await log.config.set("app/leader", value, expected_revision=0)
            except ConfigConflict as error:
                outcomes.append(error)
            else:
                outcomes.append(None)

        async with anyio.create_task_group() as both:
            for value in ("one", "two"):
                both.start_soon(change, value)
        assert sorted(it is None for it in outcomes) == [False, True]
        (entry,) = await log.config.get(["app/leader"])
        await log.config.delete("app/leader", expected_revision=entry.revision)
        with pytest.raises(NoSuchConfigKey):
            await log.config.delete("app/leader")


async def test_a_tick_interval_of_an_hour_ends_at_once(tmp_path: Path) -> None:
    given = {"pchannels": 1, "tick_interval_ms": 3_600_000}
    async with (
        local_broker(tmp_path / "data", **given) as broker,
        connect(broker.address) as log,
    ):
        (before,) = await log.admin.channels()

        async def ticks() -> bool:
            (now,) = await log.admin.channels()
            return now.closed_tick > before.closed_tick + (1000 << 18)

        await log.config.set("tick_interval_ms", "50")
        await until(ticks)


async def test_limits_of_transactions_change_on_channels_that_are_open(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        await log.collections.create("trains")
        (shard,) = (await log.collections.get("trains")).vchannels
        async with log.txn(shard) as first:
            await first.append(b"one")
            await log.config.set("open_txns_max", "1")
            # A slow machine needs longer to hear why.
            for deadline_s in (0.5, 4.0, 16.0):
                with pytest.raises(TidemarkError) as refused:
                    async with log.txn(shard, deadline_s=deadline_s) as second:
                        await second.append(b"two")
                if "the limit is 1" in str(refused.value):
                    break
            assert "the limit is 1" in str(refused.value)
            await log.config.delete("open_txns_max")
            async with log.txn(shard) as second:
                await second.append(b"two")


async def test_a_large_configuration_is_stored_and_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("".join(f"app.k{n}: {'x' * 2000}\n" for n in range(1000)))
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        await log.config.load(path)
        assert len(await log.config.get_by_prefix("/app/")) == 1000
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        assert len(await log.config.get_by_prefix("/app/")) == 1000


@pytest.mark.parametrize("expected_revision", [None, 3])
async def test_a_change_that_the_server_does_not_know_the_outcome_of_is_not_called_refused(
    expected_revision: int | None,
) -> None:
    class Unsure:
        async def call(self, *_: object, **__: Any) -> None:
            raise UnknownRefusal("the store gave no answer", StreamingCode.UNKNOWN)

    config = ClusterConfig(cast(Connection, Unsure()), deadline_s=0.05)
    with pytest.raises(OutcomeUnknown, match=r"gave no answer.*read it again"):
        await config.set("retention_ms", "5", expected_revision=expected_revision)


async def test_what_an_earlier_attempt_may_have_stored_is_not_called_refused_by_a_later_one() -> (
    None
):
    class ThenAway:
        calls = 0

        async def call(self, *_: object, **__: Any) -> None:
            self.calls += 1
            if self.calls == 1:
                raise UnknownRefusal("the store gave no answer", StreamingCode.UNKNOWN)
            raise ServerFailed("the store is away", StreamingCode.INNER)

    config = ClusterConfig(cast(Connection, ThenAway()), deadline_s=0.5)
    with pytest.raises(OutcomeUnknown, match=r"is away.*read it again"):
        await config.set("retention_ms", "5")
