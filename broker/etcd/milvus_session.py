"""Announces a process in etcd as Milvus's Go clients look for it: a JSON value under a lease.

The key of a coordinator is the same for all of a cluster, so a newer one replaces an older one, and
never the other way round: by the terms that the values have. Another cluster's is left alone.
"""

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.etcd.leased_keys import TTL_S, LeasedKeys
from broker.etcd.members import Members
from broker.etcd.requests import RANGE, TXN, at_revision
from broker.ports.meta import MetaError
from schemas.generated.etcdserverpb import (
    KeyValue,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

META: Final = "meta"
"""Milvus's `etcd.metaSubPath`."""
MIXCOORD, STREAMINGNODE = "mixcoord", "streamingnode"
MILVUS_VERSION: Final = "2.6.6"
"""Clients pass over sessions of a version below 2.6.0-dev."""
CLUSTER_LABEL, TERM_LABEL = "tidemark-cluster", "tidemark-term"
ATTEMPTS_MAX: Final = 5


class SessionTaken(MetaError):
    """The key is held by another cluster, or by a newer process of this one."""


@dataclass(frozen=True, slots=True)
class MilvusSession:
    """A process as Milvus's clients see it. `name`: MIXCOORD or STREAMINGNODE.

    `exclusive`: one key for all processes of this name. `term`: larger in each process that takes
    the place of another one: of a leader, its term; of a node, its session at the coordinator.
    """

    name: str
    server_id: int
    address: str
    exclusive: bool = False
    term: int = 0

    def key(self, root: str) -> bytes:
        """Below `root`, Milvus's `etcd.rootPath`."""
        number = "" if self.exclusive else f"-{self.server_id}"
        return f"{root}/{META}/session/{self.name}{number}".encode()

    def encoded(self, lease: int, cluster: str) -> bytes:
        """The value of the key under a lease."""
        fields = {
            "ServerID": self.server_id,
            "ServerName": self.name,
            "Address": self.address,
            "Exclusive": self.exclusive,
            "Stopping": False,
            "TriggerKill": False,
            "Version": MILVUS_VERSION,
            "IndexEngineVersion": {},
            "ScalarIndexEngineVersion": {},
            "LeaseID": lease,
            "HostName": socket.gethostname(),
            "ServerLabels": {CLUSTER_LABEL: cluster, TERM_LABEL: str(self.term)},
        }
        return json.dumps(fields, separators=(",", ":")).encode()


class AnnouncedSession(LeasedKeys):
    """The key of a session; `cluster`: the identity of the cluster that it is of.

    Entering, and `renew`, raise SessionTaken as well; a later `renew` tries again.
    """

    def __init__(
        self, members: Members, session: MilvusSession, root: str, cluster: str, ttl_s: int = TTL_S
    ) -> None:
        super().__init__(members, {}, ttl_s)
        self._session, self._cluster = session, cluster
        self._key = session.key(root)
        self._next_id = f"{root}/{META}/session/id".encode()

    async def renew(self) -> None:
        """See LeasedKeys; puts the key again when it is gone."""
        # A paused process with the same id may have replaced it, and that one's lease has ended.
        self._stands = self._stands and await self._read(self._key) is not None
        await super().renew()

    async def _put_under(self, lease: int) -> None:
        await self._reserve_id()
        for _ in range(ATTEMPTS_MAX):
            found = await self._read(self._key)
            if found is not None:
                self._check(found)
            if await self._replaced(
                self._key, found, self._session.encoded(lease, self._cluster), lease
            ):
                return
        raise self._busy(self._key)

    async def _reserve_id(self) -> None:
        """Milvus's processes take their IDs from a counter: let it be above ours."""
        for _ in range(ATTEMPTS_MAX):
            found = await self._read(self._next_id)
            try:
                following = int(found.value) if found is not None else 1
            except ValueError:
                return  # not the counter that we know
            wanted = self._session.server_id + 1
            if following >= wanted or await self._replaced(
                self._next_id, found, str(wanted).encode()
            ):
                return
        raise self._busy(self._next_id)

    def _check(self, found: KeyValue) -> None:
        """Raises SessionTaken unless this session may replace the one that was found."""
        cluster, term, address = _read_session(found.value)
        if cluster != self._cluster:
            of = f"cluster {cluster}" if cluster else "a Milvus"
            raise SessionTaken(
                f"{self._key.decode()} in etcd is of {of} at {address or 'an unknown address'}:"
                " set milvus_root to another root path, or stop the other one"
            )
        if term > self._session.term:
            raise SessionTaken(f"{self._key.decode()} in etcd is of a newer process at {address}")

    async def _read(self, key: bytes) -> KeyValue | None:
        answer = await self._members.answered(RANGE, RangeRequest(key=key), RangeResponse)
        found: Sequence[KeyValue] = answer.kvs
        return found[0] if found else None

    async def _replaced(
        self, key: bytes, found: KeyValue | None, value: bytes, lease: int = 0
    ) -> bool:
        """Whether the key was as it was found. Sent twice, the second one changes nothing."""
        request = TxnRequest(
            compare=[at_revision(key, 0 if found is None else found.mod_revision)],
            success=[RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))],
        )
        return (await self._members.answered(TXN, request, TxnResponse)).succeeded

    def _busy(self, key: bytes) -> MetaError:
        return MetaError(f"{key.decode()} in etcd was changed {ATTEMPTS_MAX} times meanwhile")


def _read_session(value: bytes) -> tuple[str, int, str]:
    """Cluster, term and address; empty where the value has none."""
    try:
        fields: Any = json.loads(value)
        labels = fields.get("ServerLabels") or {}
        cluster, term = str(labels.get(CLUSTER_LABEL, "")), int(labels.get(TERM_LABEL, 0))
        return cluster, term, str(fields.get("Address", ""))
    except (ValueError, AttributeError, TypeError):
        return "", 0, ""
