"""Probes of a process: alive and ready, over HTTP and gRPC, from its start to its end."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import grpc
import pytest
import structlog.testing
from grpclib.const import Status

from broker.app import CannotStart
from broker.app.probes.http_server import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    PageAnswer,
    PageRequest,
    http_served,
)
from broker.client import connect
from schemas.generated.grpc.health.v1 import HealthCheckRequest, HealthCheckResponse
from schemas.generated.grpc.health.v1 import HealthCheckResponseServingStatus as Serving
from tests.broker_process import free_port
from tests.issued_files import Authorities
from tests.local_broker import local_broker
from tests.roles_processes import RoleProcess, node_pids, until

GUARD_S = 60.0


async def fetch(
    base: str, path: str, *lines: str, method: str = "GET", tls: ssl.SSLContext | None = None
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of an answer, which ends with the connection."""
    host, _, port = base.partition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    request = [f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""]
    writer.write("\r\n".join(request).encode())
    with anyio.fail_after(GUARD_S):
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    first, *rest = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in rest)
    return int(first.split()[1]), headers, body


async def ready(base: str) -> tuple[int, list[str]]:
    status, _, body = await fetch(base, "/readyz")
    answer = json.loads(body)
    assert answer["ready"] is (status == 200) is (not answer["reasons"])
    return status, answer["reasons"]


async def test_a_broker_is_alive_and_ready(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0) as broker:
        assert (await fetch(broker.http, "/healthz"))[::2] == (200, '{"alive": true}\n')
        assert await ready(broker.http) == (200, [])
        status, headers, body = await fetch(broker.http, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert "tidemark_connections" in body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/readyz?verbose=1", 200),
        ("POST", "/metrics", 405),
        ("HEAD", "/healthz", 200),
    ],
)
async def test_other_requests_are_told_what_they_are(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0) as broker:
        found, _, body = await fetch(broker.http, path, method=method)
    assert found == status
    assert bool(body) is (method != "HEAD")
    if status == 404:
        assert body == "there are /healthz, /readyz, /metrics\n"


NONSENSE = (
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"\xff\xfe\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nA: " + b"x" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n",
)


@pytest.mark.parametrize("given", NONSENSE)
async def test_nonsense_ends_its_connection_and_nothing_else(tmp_path: Path, given: bytes) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0) as broker:
        port = int(broker.http.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(given)
        assert await ended(reader)
        writer.close()
        assert (await fetch(broker.http, "/healthz"))[0] == 200


async def test_peers_that_send_nothing_keep_no_probe_out_and_are_cut_off(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0) as broker:
        port = int(broker.http.rpartition(":")[2])
        slow = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * CONNECTIONS_MAX)
        ]
        for _, writer in slow:
            writer.write(b"GET /metr")
        assert (await fetch(broker.http, "/healthz"))[0] == 200
        for reader, writer in slow:
            assert await ended(reader)
            writer.close()


async def test_a_page_that_takes_too_long_is_told_as_unavailable() -> None:
    async def never(_: PageRequest) -> PageAnswer:
        await anyio.sleep_forever()
        raise AssertionError

    async with http_served("127.0.0.1", 0, {"/never": never}, page_s=0.01) as port:
        status, _, body = await fetch(f"http://127.0.0.1:{port}", "/never")
    assert (status, body) == (
        503,
        "/never was not made within 0.01 s: the process is slow; ask again\n",
    )


async def test_pages_that_nobody_waits_for_are_not_made_to_their_end() -> None:
    making = 0
    more, fewer = asyncio.Event(), asyncio.Event()

    async def never(_: PageRequest) -> PageAnswer:
        nonlocal making
        making += 1
        if making == CONNECTIONS_MAX:
            more.set()
        try:
            await anyio.sleep_forever()
        finally:
            making -= 1
            if making == 0:
                fewer.set()
        raise AssertionError

    async def now(_: PageRequest) -> PageAnswer:
        return PageAnswer(b"%d" % making)

    with anyio.fail_after(GUARD_S):
        async with http_served("127.0.0.1", 0, {"/never": never, "/now": now}) as port:
            opened = []
            for _ in range(CONNECTIONS_MAX):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /never HTTP/1.1\r\n\r\n")
                opened.append(writer)
            await more.wait()
            for _ in range(3):
                _, _, body = await fetch(f"http://127.0.0.1:{port}", "/now")
                assert int(body) == CONNECTIONS_MAX - 1
        await fewer.wait()
    for writer in opened:
        writer.close()


@pytest.mark.parametrize("error", [ValueError, TimeoutError, OSError, KeyError])
async def test_a_page_that_fails_is_told_as_an_error(error: type[Exception]) -> None:
    async def fails(_: PageRequest) -> PageAnswer:
        raise error("the reason")

    with structlog.testing.capture_logs() as logged:
        async with http_served("127.0.0.1", 0, {"/fails": fails}) as port:
            status, _, body = await fetch(f"http://127.0.0.1:{port}", "/fails")
    assert (status, body) == (500, "/fails failed; the log of the process says why\n")
    assert [it["page"] for it in logged] == ["/fails"]


async def ended(reader: asyncio.StreamReader) -> bool:
    with anyio.fail_after(GUARD_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_a_port_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port := free_port())
    async with server:
        with pytest.raises(CannotStart, match=f"127.0.0.1:{port}.*--http-port"):
            async with local_broker(tmp_path, pchannels=1, http_port=port):
                pass


async def test_it_listens_where_it_is_told(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1, http_port=0, http_host="::1") as broker:
        assert broker.http.startswith("http://[::1]:")
        assert await ready(broker.http) == (200, [])


async def test_with_a_certificate_it_speaks_tls_and_asks_probes_for_none(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "tls")
    files = ours.server()
    given = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.client_ca}
    async with local_broker(tmp_path / "data", pchannels=1, http_port=0, **given) as broker:
        assert broker.http.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(ours.ca))

        def metrics() -> str:
            with urllib.request.urlopen(f"{broker.http}/metrics", context=trusting) as page:
                return str(page.read().decode())

        assert "tidemark_tls_certificate_end_seconds 1." in await asyncio.to_thread(metrics)


# ---- the standard health service, asked by grpcio --------------------------------------------


@asynccontextmanager
async def stub(address: str, method: str) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    async with grpc.aio.insecure_channel(address) as channel:
        make = channel.unary_unary if method == "Check" else channel.unary_stream
        yield make(
            f"/grpc.health.v1.Health/{method}",
            request_serializer=bytes,
            response_deserializer=HealthCheckResponse.parse,
        )


@pytest.mark.parametrize(
    "service",
    [
        "",
        "tidemark.v1.Log",
        "grpc.health.v1.Health",
        "milvus.proto.streaming.StreamingNodeHandlerService",
    ],
)
async def test_each_service_of_a_broker_serves(tmp_path: Path, service: str) -> None:
    async with (
        local_broker(tmp_path, pchannels=1) as broker,
        stub(broker.address, "Check") as check,
    ):
        answer = await check(HealthCheckRequest(service=service), timeout=GUARD_S)
    assert answer.status is Serving.SERVING


async def test_a_service_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        async with stub(broker.address, "Check") as check:
            with pytest.raises(grpc.aio.AioRpcError, match="no service 'etcd'") as raised:
                await check(HealthCheckRequest(service="etcd"), timeout=GUARD_S)
        assert raised.value.code().value[0] == Status.NOT_FOUND.value
        async with stub(broker.address, "Watch") as watch:
            call = watch(HealthCheckRequest(service="etcd"), timeout=GUARD_S)
            assert (await call.read()).status is Serving.SERVICE_UNKNOWN
            call.cancel()


async def test_a_watcher_sees_a_broker_stop(tmp_path: Path) -> None:
    seen: list[Serving] = []
    served = anyio.Event()

    async def watch_it(address: str) -> None:
        async with stub(address, "Watch") as watch:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for answer in watch(HealthCheckRequest(), timeout=GUARD_S):
                    seen.append(answer.status)
                    served.set()

    async with anyio.create_task_group() as tasks, local_broker(tmp_path, pchannels=1) as broker:
        tasks.start_soon(watch_it, broker.address)
        await served.wait()
    assert seen == [Serving.SERVING, Serving.NOT_SERVING]


# ---- real processes ----------------------------------------------------------------------------


async def test_a_node_is_not_ready_while_its_coordinator_is_away(tmp_path: Path) -> None:
    at, http = f"127.0.0.1:{free_port()}", free_port()
    data = ("--data-dir", str(tmp_path), "--pchannels", "1")
    with RoleProcess("coordinator", "--listen", at, *data) as coordinator:
        await coordinator.ready()
        place = ("--data-dir", str(tmp_path), "--coordinator", at, "--listen", "127.0.0.1:0")
        with RoleProcess("node", *place, "--http-port", str(http)) as node:
            address = await node.ready()
            base = f"http://127.0.0.1:{http}"
            assert await ready(base) == (200, [])
            coordinator.process.kill()
            coordinator.process.wait()

            async def says_so() -> bool:
                status, reasons = await ready(base)
                return status == 503 and "does not renew" in reasons[0]

            await until(says_so)
            assert (await fetch(base, "/healthz"))[0] == 200
            async with stub(address, "Check") as check:
                answer = await check(HealthCheckRequest(service="tidemark.v1.Log"))
            assert answer.status is Serving.NOT_SERVING


async def test_probes_see_a_start_and_a_drain(tmp_path: Path) -> None:
    """A parent whose node does not answer takes its time to stop."""
    base = f"http://127.0.0.1:{(http := free_port())}"
    statuses: list[tuple[int, list[str]]] = []

    async def is_ready() -> bool:
        try:
            statuses.append(await ready(base))
        except OSError:
            return False
        return statuses[-1][0] == 200

    async def is_stopping() -> bool:
        status, reasons = await ready(base)
        return status == 503 and reasons[0].startswith("stopping: ")

    options = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http-port", str(http))
    with RoleProcess("serve", "--nodes", "1", "--pchannels", "1", *options) as parent:
        await until(is_ready)
        assert statuses[0][0] == 503
        assert statuses[0][1][0].startswith("starting: ")
        async with connect(await parent.ready()) as log:
            (node,) = (await node_pids(log)).values()
        os.kill(node, signal.SIGSTOP)
        parent.process.send_signal(signal.SIGTERM)
        await until(is_stopping)
        assert (await fetch(base, "/healthz"))[0] == 200
        assert await anyio.to_thread.run_sync(parent.process.wait) == 0
