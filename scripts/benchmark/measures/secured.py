"""Measures what TLS with certificates on both sides costs: a broker with it beside one without.

In slices that take turns, so that both see the same load of the machine.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import uvloop
from served_broker import served_broker

from benchmark import names
from benchmark.measures.batches import Batches
from benchmark.measures.latency import Latency
from benchmark.measures.master.together import Values
from benchmark.measures.milvus_protocol import MilvusProtocol
from benchmark.results.figures import P50, RATE
from broker.app.security.certificate_authority import Authority
from broker.client import Tls

SLICES = 3
APPENDS_ONE_BY_ONE = 100
"""In each slice."""
RUN_S_MAX = 300
CLOSE_S = 2.0
HOST = "127.0.0.1"


class Secured:
    """Starts both brokers for each round, with their data below `folder`.

    `messages`: of each rate in a round; `in_batches`: of each rate of batches.
    """

    def __init__(self, folder: Path, messages: int, in_batches: int) -> None:
        self._folder = folder
        self._messages = {
            what: max(4_000, (messages if what == names.TLS_PRODUCE else in_batches) // SLICES)
            for what in (*names.TLS_RATES, names.TLS_ONE)
        }

    def measure(self) -> Mapping[str, Values]:
        """Messages a second of each rate, and the milliseconds of an append."""
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as name:
            place = Path(name)
            flags, tls = _certificates(place)
            with (
                served_broker(place / "plain") as plain,
                served_broker(place / "secured", *flags) as secured,
            ):
                sides = (
                    _Side(names.plain, plain.address, None),
                    _Side(names.over_tls, secured.address, tls),
                )
                return uvloop.run(asyncio.wait_for(self._measured(sides), RUN_S_MAX))

    async def _measured(self, sides: "tuple[_Side, _Side]") -> dict[str, Values]:
        for _ in range(SLICES):
            for what in (*names.TLS_RATES, names.TLS_ONE):
                for side in sides:
                    await side.run(what, self._messages[what])
        # The ends of TLS connections come with an answer; the loop must not be closed before it.
        await asyncio.sleep(CLOSE_S)
        return {name: values for side in sides for name, values in side.found().items()}


class _Side:
    """One of the two brokers, and what was measured on it."""

    def __init__(self, named: Callable[[str], str], address: str, tls: Tls | None) -> None:
        self._named = named
        self._batches = Batches(address, tls)
        self._milvus = MilvusProtocol(address, tls)
        self._latency = Latency(address, tls)
        self._messages: dict[str, float] = {}
        self._took_s: dict[str, float] = {}
        self._p50s_ms: list[float] = []

    async def run(self, what: str, messages: int) -> None:
        """One slice."""
        if what == names.TLS_ONE:
            found = await self._latency.one_by_one("fsync", APPENDS_ONE_BY_ONE)
            self._p50s_ms.append(found[P50])
            return
        if what == names.TLS_APPENDS:
            found = await self._batches.append("fsync", messages)
        elif what == names.TLS_READS:
            found = await self._batches.read(messages)
        else:
            found = await self._milvus.append(messages)
        self._messages[what] = self._messages.get(what, 0) + found["messages"]
        self._took_s[what] = self._took_s.get(what, 0) + found["messages"] / found[RATE]

    def found(self) -> dict[str, Values]:
        """What all slices together say, by the names of the subjects."""
        rates: dict[str, Values] = {
            self._named(what): {RATE: self._messages[what] / it, "messages": self._messages[what]}
            for what, it in self._took_s.items()
        }
        return rates | {self._named(names.TLS_ONE): {P50: median(self._p50s_ms)}}


def _certificates(folder: Path) -> tuple[list[str], Tls]:
    """The flags of a broker that asks for certificates, and what a client shows it."""
    authority = Authority("bench", datetime.now(UTC))
    paths = {name: folder / f"{name}.pem" for name in ("ca", "server", "client")}
    paths["ca"].write_bytes(authority.own.cert)
    for name, hosts in (("server", [HOST]), ("client", [])):
        issued = authority.issue(name, hosts)
        # Both in one file, as PEM allows.
        paths[name].touch(mode=0o600)
        paths[name].write_bytes(issued.cert + issued.key)
    server, client = str(paths["server"]), paths["client"]
    flags = ["--tls-cert", server, "--tls-key", server, "--tls-ca", str(paths["ca"])]
    return flags, Tls(paths["ca"], client, client)
