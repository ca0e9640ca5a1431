"""Measures how long the open streams of a token live on after it was revoked.

The streams are of every kind that has them: appends and reads of both protocols, members of groups,
watchers of the assignment table. Somebody else appends meanwhile, so that readers are busy. The
time begins before the revocation is asked for. With --keys it is that of a JWT, whose key is taken
out of the file of keys.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.client.append.producer_stream import APPEND
from broker.client.cluster.server_admin import ChannelInfo
from broker.client.errors import NotAuthenticated, TidemarkError
from broker.client.groups.group_subscription import JOIN
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from broker.client.net.control_messages import (
    CONSUME,
    DISCOVER,
    PRODUCE,
    consumer_metadata,
    create_consumer,
    producer_metadata,
)
from broker.client.read.batch_subscription import READ
from broker.edge.access.new_token import new_token
from broker.model.channel import AccessMode, PChannel
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.position import FromLatest
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded
from tests.broker_process import BrokerProcess
from tests.jwt_provider import AUDIENCE, ISSUER, claims, jwk, key_set, token

CLUSTER = "by-dev"
COLLECTION, GROUP, USER = "watched", "workers", "tenant"
PCHANNELS = 8
STREAMS_OF_CONNECTION = 10
APPENDS_S = 20
"""Each is sent to about a fiftieth of the streams."""
OPENING_MAX = 50
OPEN_S, END_S = 60.0, 60.0
GOAL_S = 2.0
OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of stream: its method, and the request after the first answer; b"": none."""

    name: str
    path: str
    metadata: Mapping[str, str]
    request: bytes = b""


@dataclass(slots=True)
class Streams:
    """Those of one token: how many are open, and when each ended, by its kind."""

    open: int = 0
    ended_s: list[tuple[float, str]] = field(default_factory=list)
    others: list[TidemarkError] = field(default_factory=list)
    """Ends of streams that are not refusals of the token."""


def main() -> int:
    """0 when the last stream ended in time in each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=2, help="for the streams on other nodes")
    parser.add_argument("--keys", action="store_true", help="withdraw the key of a JWT")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, OPEN_FILES), most))
    kept = True
    for where, nodes in (("the process that answers", 0), ("other nodes", options.nodes)):
        took_s = asyncio.run(
            measured(where, nodes, options.streams, options.rounds, keys=options.keys)
        )
        kept = told(where, options.streams, took_s) and kept
    return 0 if kept else 1


def told(where: str, streams: int, took_s: Sequence[float]) -> bool:
    """Print the times of all rounds; whether each is within the goal."""
    kept = max(took_s) < GOAL_S
    print(
        f"{'met' if kept else 'MISSED'}: {streams:,} streams on {where}, {len(took_s)} rounds: the"
        f" last one ended {statistics.median(took_s):.2f} s after the revocation began (median),"
        f" {max(took_s):.2f} s at most (goal: {GOAL_S:g} s)",
        flush=True,
    )
    return kept


async def measured(
    where: str, nodes: int, streams: int, rounds: int, *, keys: bool = False
) -> list[float]:
    """Seconds until the last stream had ended, of each round."""
    with tempfile.TemporaryDirectory() as name:
        admin, file = _administrator(Path(name))
        provider = Provider(Path(name) / "keys.json") if keys else None
        settings = {"auth": "on", "auth_bootstrap": str(file), "pchannels": str(PCHANNELS)}
        settings |= provider.settings if provider is not None else {}
        with BrokerProcess(Path(name) / "data", nodes=str(nodes), **settings) as broker:
            async with connect(broker.address, token=admin) as root:
                await root.collections.create(COLLECTION, shards=PCHANNELS)
                await root.group(GROUP).create(COLLECTION)
                await root.auth.add_role(
                    "tenant",
                    [
                        f"produce:collection:{COLLECTION}",
                        f"consume:collection:{COLLECTION}",
                        f"group:group:{GROUP}",
                    ],
                )
                await root.auth.add_user(USER, ["tenant"])
                return [
                    await _round(where, broker.address, root, streams, provider)
                    for _ in range(rounds)
                ]


def _administrator(folder: Path) -> tuple[str, Path]:
    """A token of one, and the file by which the broker knows it."""
    text, _ = new_token("root", made_ms=1)
    file = folder / "users.toml"
    file.touch(0o600)
    file.write_text(f'[users.root]\nroles = ["admin"]\ntoken = "{text}"\n')
    return text, file


class Provider:
    """An identity provider whose keys are in a file; it has one, of its newest token."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made = 0
        self.settings = {
            "jwt_jwks": str(file),
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
        }
        self._publish()

    def token(self) -> str:
        """One of the newest key, for an hour."""
        now_s = int(time.time())
        said = claims(tidemark_roles=["tenant"], iat=now_s, exp=now_s + 3600)
        return token(said, f"k{self._made}", number=self._made)

    async def withdraw(self) -> None:
        """Publish another key instead of the newest one."""
        self._made += 1
        self._publish()

    def _publish(self) -> None:
        whole = self._file.with_suffix(".new")
        whole.write_bytes(key_set(jwk(f"k{self._made}", number=self._made)))
        whole.replace(self._file)


async def _proof(
    root: Client, provider: Provider | None
) -> tuple[str, Callable[[], Awaitable[None]]]:
    """A token, and what ends it."""
    if provider is not None:
        return provider.token(), provider.withdraw
    made = await root.auth.add_token(USER)
    return made.text, partial(root.auth.revoke_token, made.info.id)


async def _round(
    where: str, address: str, root: Client, streams: int, provider: Provider | None
) -> float:
    text, revoke = await _proof(root, provider)
    channels = await root.admin.channels()
    found = Streams()
    async with AsyncExitStack() as stack:
        opened = _Opened(stack, text)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        appending = await stack.enter_async_context(anyio.create_task_group())
        appending.start_soon(_append, root)
        places = anyio.Semaphore(OPENING_MAX)
        for number in range(streams):
            channel = channels[number % len(channels)]
            kinds = _kinds(channel)
            kind = kinds[number // len(channels) % len(kinds)]
            at = address if kind.path == DISCOVER else channel.address
            await places.acquire()
            tasks.start_soon(_hold, opened.connection(at), kind, places, found)
        with anyio.fail_after(OPEN_S):
            while found.open < streams and not found.others:  # noqa: ASYNC110 - it only measures
                await anyio.sleep(0.01)
        began_s = time.monotonic()
        await revoke()
        answered_s = time.monotonic()
        with anyio.move_on_after(END_S):
            while len(found.ended_s) + len(found.others) < streams:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        appending.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    return judged(where, streams, found, began_s, answered_s)


def judged(where: str, streams: int, found: Streams, began_s: float, answered_s: float) -> float:
    """Print when they ended, in seconds on one clock; the seconds until the last one did."""
    if found.others:
        raise SystemExit(f"a stream ended for another reason: {found.others[0]!r}")
    if len(found.ended_s) < streams:
        raise SystemExit(f"{streams - len(found.ended_s)} streams did not end in {END_S:g} s")
    early = [kind for at_s, kind in found.ended_s if at_s < began_s]
    if early:
        raise SystemExit(f"streams ended before the revocation: {Counter(early)}")
    times_s = sorted(at_s - began_s for at_s, _ in found.ended_s)
    last: dict[str, float] = {}
    for at_s, kind in found.ended_s:
        last[kind] = max(last.get(kind, 0.0), at_s - began_s)
    print(
        f"{streams:,} streams on {where}: answered after {answered_s - began_s:.3f} s, first end"
        f" {times_s[0]:.2f} s, half {times_s[len(times_s) // 2]:.2f} s, last {times_s[-1]:.2f} s ("
        + ", ".join([f"{kind} {at_s:.2f}" for kind, at_s in sorted(last.items())])
        + ")",
        flush=True,
    )
    return times_s[-1]


class _Opened:
    """Connections that show one token, each for so many streams."""

    def __init__(self, stack: AsyncExitStack, token: str) -> None:
        self._stack = stack
        self._token = token
        self._used: Counter[str] = Counter()
        self._newest: dict[str, Connection] = {}

    def connection(self, address: str) -> Connection:
        if self._used[address] % STREAMS_OF_CONNECTION == 0:
            made = Connection(
                address, cluster=CLUSTER, lifetime=ClientLifetime(), token=self._token
            )
            self._stack.callback(made.close)
            self._newest[address] = made
        self._used[address] += 1
        return self._newest[address]


def _kinds(at: ChannelInfo) -> list[Kind]:
    channel = PChannel(PChannelName(at.name), Term(at.term), AccessMode.READ_WRITE)
    node = NodeId(at.node_id)
    writes, reads = producer_metadata(channel, node), consumer_metadata(channel, node)
    (vchannel,) = [it for it in at.vchannels if not it.endswith("_vcchan")]
    read = v1.ReadRequest(open=v1.ReadOpen(vchannels=[vchannel], latest=True), credit_bytes=1 << 30)
    join = v1.JoinGroupRequest(
        open=v1.GroupOpen(vchannel=vchannel, group=GROUP), credit_bytes=1 << 30
    )
    return [
        Kind("Append", APPEND, writes),
        Kind("Produce", PRODUCE, writes),
        Kind("Read", READ, reads, frame(encoded(read))),
        Kind("Consume", CONSUME, reads, create_consumer(vchannel, FromLatest(), ())),
        Kind("Join", JOIN, reads, frame(encoded(join))),
        Kind("AssignmentDiscover", DISCOVER, {}),
    ]


async def _hold(
    connection: Connection, kind: Kind, places: anyio.Semaphore, found: Streams
) -> None:
    """Open a stream, and read it until it ends."""
    try:
        async with connection.converse(kind.path, kind.metadata, deadline_s=OPEN_S) as stream:
            try:
                await stream.read(OPEN_S)
                if kind.request:
                    await stream.write(kind.request, OPEN_S)
                    await stream.read(OPEN_S)
                found.open += 1
            finally:
                places.release()
            while True:
                await stream.read(None)
    except NotAuthenticated:
        found.ended_s.append((time.monotonic(), kind.name))
    except TidemarkError as error:
        found.others.append(error)


async def _append(root: Client) -> None:
    while True:
        await root.append(COLLECTION, b"x")
        await anyio.sleep(1 / APPENDS_S)


if __name__ == "__main__":
    sys.exit(main())
