"""What Prometheus gets: every row of the table, few labels, well formed, from a broker at work."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from broker.app import Broker
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from broker.metrics.registry import METRICS
from broker.metrics.table import PREFIX
from tests.local_broker import local_broker

PCHANNELS = pchannel_names("by-dev", 2)
P0 = PCHANNELS[0]
V0 = NewVChannel(f"{P0}_1v0")
LABELS = {"type", "channel", "kind", "le", "policy", "state", "term"}
DEADLINE_S = 30.0


async def fetch(url: str, *lines: str) -> tuple[str, str]:
    """Head and body of an answer, which ends with the connection."""
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)", url)
    assert found is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
    request = ["GET /metrics HTTP/1.1", "Host: here", *lines, "", ""]
    writer.write("\r\n".join(request).encode())
    with anyio.fail_after(DEADLINE_S):
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def families(url: str) -> dict[str, Metric]:
    _, body = await fetch(url)
    return {family.name: family for family in prometheus(body)}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    """Of the one sample with these labels."""
    samples = [it for family in found.values() for it in family.samples]
    (one,) = [it.value for it in samples if (it.name, it.labels) == (PREFIX + name, labels)]
    return one


@asynccontextmanager
async def at_hand(data_dir: Path) -> AsyncIterator[tuple[Broker, Client]]:
    async with (
        local_broker(data_dir, pchannels=2, http_port=0) as broker,
        connect(broker.address) as log,
    ):
        yield broker, log


async def at_work(log: Client) -> None:
    """Messages, a transaction, a reader: something for each figure."""
    await asyncio.gather(*[log.append(V0, b"x" * 100) for _ in range(50)])
    async with log.txn(V0) as txn:
        await txn.append(b"in a transaction")
    read = [message async for message in log.read(V0, until="now").messages()]
    assert len(read) == 51


async def test_every_name_of_the_table_is_exposed_and_no_other(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        await at_work(log)
        found = await families(broker.http)
    wanted = {metric.full_name.removesuffix("_total") for metric in METRICS}
    assert {name.removesuffix("_total") for name in found} == wanted
    assert all(family.documentation for family in found.values())
    labels = {label for family in found.values() for it in family.samples for label in it.labels}
    assert labels <= LABELS
    channels = {it.labels.get("channel") for family in found.values() for it in family.samples}
    assert channels <= {None, *PCHANNELS}


def test_total_ends_the_names_of_counters_and_of_nothing_else() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name


def test_names_have_units_of_prometheus_and_no_other() -> None:
    """Seconds and bytes without a prefix, at the end of the name, before `_total`."""
    other = re.compile(r"(^|_)(ms|millis|milliseconds|minutes|kb|mb|kib|mib|percent)(_|$)")
    for metric in METRICS:
        assert not other.search(metric.name), metric.name
        for unit in ("seconds", "bytes", "ratio"):
            if unit in metric.name.split("_"):
                assert metric.name.removesuffix("_total").endswith(f"_{unit}"), metric.name
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds"), metric.name


async def test_the_process_and_its_disk_are_measured(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        before = await families(broker.http)
        await at_work(log)
        found = await families(broker.http)
    plain = {it.name: it.value for family in found.values() for it in family.samples}
    assert plain["process_cpu_seconds_total"] > 0
    assert 1 << 20 < plain["process_resident_memory_bytes"] < 1 << 40
    assert 3 < plain["process_open_fds"] < plain["process_max_fds"]
    usage = shutil.disk_usage(tmp_path)
    assert abs(value(found, "data_free_bytes") - usage.free) < 1 << 30
    assert value(found, "data_capacity_bytes") == usage.total
    cpu = "process_cpu_seconds"
    assert found[cpu].samples[0].value >= before[cpu].samples[0].value


async def test_the_lag_of_each_cursor_is_measured_by_collection(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        await log.collections.create("flights", shards=2)
        cut = await log.cut("flights")
        await log.cursor("mine, 'too'").move(cut.tick, "flights")
        labels = {"cursor": "mine, 'too'", "collection": "flights"}
        with anyio.fail_after(DEADLINE_S):
            while True:
                found = await families(broker.http)
                lags = found[f"{PREFIX}cursor_lag_seconds"].samples
                if [it.labels for it in lags if 0 < it.value < DEADLINE_S] == [labels]:
                    break
                await anyio.sleep(0.05)


async def test_figures_are_those_of_what_was_done(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        await at_work(log)
        found = await families(broker.http)
        assert value(found, "wal_append_message_total", channel=P0) == 53  # begin and commit
        assert value(found, "wal_append_message_bytes_total", channel=P0) > 50 * 100
        assert value(found, "wal_insert_rows_total", channel=P0) == 51
        assert value(found, "wal_insert_bytes_total", channel=P0) > 50 * 100
        assert value(found, "wal_delete_rows_total", channel=P0) == 0
        acknowledged = "wal_acknowledge_time_tick_total"
        assert value(found, acknowledged, channel=P0, type="common") == 53
        assert value(found, acknowledged, channel=P0, type="sync") >= 1
        assert value(found, "wal_allocate_time_tick_total", channel=P0) >= 54
        txns = "wal_txn_duration_seconds"
        assert value(found, f"{txns}_count", channel=P0, state="committed") == 1
        assert 0 <= value(found, f"{txns}_sum", channel=P0, state="committed") < DEADLINE_S
        assert value(found, "streamingcoord_assignment_info") >= 1
        assert value(found, "streamingcoord_vchannels") == 0
        assert value(found, "wal_scan_pass_message_total", channel=P0) >= 51
        assert value(found, "streamingnode_consume_bytes_total", channel=P0) > 50 * 100
        assert value(found, "streamingnode_producers", channel=P0) >= 1
        assert value(found, "wal_info", channel=P0, term="2") == 1
        assert value(found, "actors", kind="appender", state="running") == 2
        assert 0 <= value(found, "wal_closed_tick_lag_seconds", channel=P0) < DEADLINE_S
        assert value(found, "wal_size_bytes", channel=P0) > 50 * 100
        groups = value(found, "wal_sync_total", channel=P0)
        assert 0 < groups <= 60 + DEADLINE_S * 5
        assert value(found, "wal_sync_duration_seconds_count", channel=P0) == groups


async def test_what_is_staged_and_what_was_committed_is_counted(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        async with log.stage("etl", 1, 0) as stage:
            await stage.append(V0, b"x" * 1000)
            found = await families(broker.http)
            assert value(found, "wal_staged_txn", channel=P0) == 1
            assert value(found, "wal_staged_txn", channel=PCHANNELS[1]) == 0
            assert value(found, "wal_staged_txn_bytes", channel=P0) >= 1000
            assert 0 <= value(found, "wal_staged_txn_age_seconds", channel=P0) < DEADLINE_S
            assert value(found, "streamingcoord_batch_committed_total") == 0
            part = await stage.seal()
        await log.commit_batch("etl", 1, [part])
        found = await families(broker.http)
    assert value(found, "wal_staged_txn", channel=P0) == 0
    assert value(found, "wal_staged_txn_age_seconds", channel=P0) == 0
    assert value(found, "streamingcoord_batch_committed_total") == 1
    assert value(found, "streamingcoord_batch_commit_apps") == 1
    assert value(found, "streamingcoord_batch_commit_age_seconds") == 0
    for state in ("preparing", "committing", "aborting"):
        assert value(found, "streamingcoord_batch_commits", state=state) == 0


async def test_counts_only_grow_when_actors_come_back(tmp_path: Path) -> None:
    async with at_hand(tmp_path) as (broker, log):
        await at_work(log)
        before = await families(broker.http)
        path = f"/root/node/channels/{P0}/log/appender"
        broker.system.kill(path)
        await log.append(V0, b"after")
        after = await families(broker.http)
    for name in ("wal_append_message_total", "wal_append_message_bytes_total", "wal_sync_total"):
        assert value(after, name, channel=P0) > value(before, name, channel=P0)
    assert value(after, "wal_info", channel=P0, term="3") == 1
    assert value(after, "actor_restarts_total", kind="appender") == 1
    handled = "actor_handled_total"
    assert value(after, handled, kind="appender") > value(before, handled, kind="appender")


async def test_openmetrics_is_given_to_who_asks_for_it(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0) as broker:
        accept = "Accept: application/openmetrics-text;version=1.0.0"
        head, body = await fetch(broker.http, accept)
    assert "Content-Type: application/openmetrics-text" in head
    assert body.endswith("# EOF\n")
    assert len(list(openmetrics(body))) == len(METRICS)  # type: ignore[no-untyped-call]
