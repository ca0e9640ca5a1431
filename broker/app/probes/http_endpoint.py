"""The HTTP port of a process: /healthz, /readyz and /metrics, when a port is set for them."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus

from actors import System, SystemClock
from broker.addresses import joined_address
from broker.app.probes.http_server import PageAnswer, PageRequest, http_served
from broker.app.probes.page_readers import PageReaders
from broker.app.process_errors import CannotStart
from broker.app.security.certificate_dates import ends
from broker.app.security.secured import http_tls
from broker.core.pressure.storage_use import StorageBook
from broker.edge.server import EdgeServer
from broker.metrics.exposition import Exposition
from broker.metrics.process_figures import ProcessFiguresReader
from broker.metrics.view import CoordinatorFigures, Sources
from broker.model.damage import Damage
from broker.node.state.channel_meters import Meters
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannels
from broker.process_memory import ProcessMemory
from broker.process_settings import Settings

JSON = "application/json"


def sources_of(  # noqa: PLR0913 - each kind of process has some of them
    settings: Settings,
    system: System,
    edge: EdgeServer,
    node: NodeRuntime | None = None,
    damages: Callable[[], Sequence[Damage]] = tuple,
    coordinator: CoordinatorFigures | None = None,
    leads: Callable[[], bool] | None = None,
) -> Sources:
    """Where the metrics of a process are read.

    `node`: None in a process that is not a node; `coordinator`: None without one that leads;
    `leads`: None in a process that is no coordinator.
    """
    return Sources(
        statistics=system.statistics,
        channels=node.open_channels if node else OpenChannels(0),
        meters=node.meters if node else Meters(),
        edge=edge.meters,
        coordinator=coordinator,
        damages=damages,
        connections=lambda: edge.connections,
        open_calls=lambda: edge.open_calls,
        process=ProcessFiguresReader(settings.data_dir, ProcessMemory().process_bytes).read,
        clock=SystemClock(),
        audit=edge.audit.sink.figures,
        certificate_ends_s=lambda: _unix_s(ends(settings.tls_cert)),
        storage=node.storage if node else StorageBook(),
        leads=leads,
    )


@asynccontextmanager
async def probes_served(
    sources: Sources,
    settings: Settings,
    reasons_against: Callable[[], Sequence[str]],
    readers: PageReaders,
) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL, or "" without a port. Raises CannotStart.

    `readers`: who may read the metrics, which have names in them; probes are for everybody.
    """
    if settings.http_port is None:
        yield ""
        return
    exposition = Exposition(sources)

    async def health(_: PageRequest) -> PageAnswer:
        # To answer is the proof: a process whose event loop is stuck does not.
        return PageAnswer(b'{"alive": true}\n', JSON)

    async def ready(_: PageRequest) -> PageAnswer:
        reasons = list(reasons_against())
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        body = json.dumps({"ready": not reasons, "reasons": reasons})
        return PageAnswer(f"{body}\n".encode(), JSON, status)

    async def metrics(request: PageRequest) -> PageAnswer:
        refused = await readers.refused("/metrics", request)
        if refused is not None:
            return refused
        return PageAnswer(*await exposition.text(request.headers.get("accept", "").lower()))

    pages = {"/healthz": health, "/readyz": ready, "/metrics": metrics}
    host, port = settings.http_host, settings.http_port
    try:
        # Entered by hand, so that an OSError of the block is not taken for one of listening.
        serving = http_served(host, port, pages, http_tls(settings))
        chosen = await serving.__aenter__()
    except OSError as error:
        cause = f"cannot serve HTTP on {joined_address(host, port)}: {error.strerror or error}"
        raise CannotStart(f"{cause}; pass another --http-port or --http-host") from error
    try:
        scheme = "http" if settings.tls_cert is None else "https"
        yield f"{scheme}://{joined_address(host, chosen)}"
    finally:
        await serving.__aexit__(None, None, None)


def _unix_s(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
