"""A broadcast: one message for many vchannels, the resource keys it locks, and its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker.model.ids import BroadcastId, VChannelName
from broker.model.message import Appended

ADOPTION_KEY: Final = "adopt:"
"""Request keys of broadcasts that announce a collection of an earlier release begin with it."""


class ResourceDomain(IntEnum):
    """Numbers of `milvus.proto.messages.ResourceDomain`; keys are listed in this order."""

    IMPORT_JOB_ID = 1
    """Used by old releases of Milvus only."""
    COLLECTION_NAME = 2
    DB_NAME = 3
    PRIVILEGE = 4
    SNAPSHOT_NAME = 5
    CLUSTER = 127


@dataclass(frozen=True, slots=True, order=True)
class ResourceKey:
    """The key of one lock, held exclusively by one broadcast or `shared` by several.

    `key` is `<database>:<collection>`, a database, or a snapshot; empty for the other domains.
    """

    domain: ResourceDomain
    key: str
    shared: bool = False

    @classmethod
    def collection(
        cls, name: str, database: str = "default", *, shared: bool = False
    ) -> "ResourceKey":
        """The name of a collection."""
        return cls(ResourceDomain.COLLECTION_NAME, f"{database}:{name}", shared)

    @classmethod
    def database(cls, name: str = "default", *, shared: bool = False) -> "ResourceKey":
        """A database; take it shared along with a collection of it."""
        return cls(ResourceDomain.DB_NAME, name, shared)

    @classmethod
    def snapshot(cls, name: str, *, shared: bool = False) -> "ResourceKey":
        """The name of a snapshot."""
        return cls(ResourceDomain.SNAPSHOT_NAME, name, shared)

    @classmethod
    def cluster(cls, *, shared: bool = False) -> "ResourceKey":
        """The whole cluster: an exclusive holder conflicts with every broadcast."""
        return cls(ResourceDomain.CLUSTER, "", shared)

    def __str__(self) -> str:
        """For people: `collection_name default:flights (shared)`."""
        text = f"{self.domain.name.lower()} {self.key}".rstrip()
        return f"{text} (shared)" if self.shared else text


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A request to append one message to several vchannels.

    `body` is the stored form that all copies share, `size` its estimate in bytes. `ack_sync_up`:
    a copy is acknowledged when it was processed, not when it is durable. `request_key` is the
    idempotency key of the request and `fingerprint` a hash of its content: a repeat of both is the
    same broadcast. `answer`: what the caller is told beside the places of the copies; it is kept as
    long as the request key. `timestamp`: the caller's, 0 for none.
    """

    type: int
    vchannels: tuple[VChannelName, ...]
    keys: tuple[ResourceKey, ...]
    body: bytes
    size: int
    request_key: str
    fingerprint: str
    ack_sync_up: bool = False
    pchannel_level: bool = False
    answer: str = ""
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class BroadcastCopy:
    """The message of one broadcast for one of its vchannels."""

    broadcast_id: BroadcastId
    vchannel: VChannelName
    broadcast: Broadcast


@dataclass(frozen=True, slots=True)
class Broadcasted:
    """A broadcast that took effect, and where its copy is on each vchannel."""

    id: BroadcastId
    results: Mapping[VChannelName, Appended]
    answer: str = ""
