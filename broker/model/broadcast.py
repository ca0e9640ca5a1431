"""A broadcast: one message for many vchannels, the resources it locks, where its copies landed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import BroadcastId, VChannelName
from broker.model.message import Appended


class ResourceDomain(IntEnum):
    """Numbers of `milvus.proto.messages.ResourceDomain`, and the order in which keys are told."""

    IMPORT_JOB_ID = 1
    """Of old releases; nobody makes such keys any more."""
    COLLECTION_NAME = 2
    DB_NAME = 3
    PRIVILEGE = 4
    SNAPSHOT_NAME = 5
    CLUSTER = 127


@dataclass(frozen=True, slots=True, order=True)
class ResourceKey:
    """One lock: of those who name the same domain and text, one may hold it, or many `shared`.

    The text is `<database>:<collection>`, a database, or a snapshot; empty for the other domains.
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
    def privileges(cls, *, shared: bool = False) -> "ResourceKey":
        """Users, roles and what they may do."""
        return cls(ResourceDomain.PRIVILEGE, "", shared)

    @classmethod
    def cluster(cls, *, shared: bool = False) -> "ResourceKey":
        """Everything: who holds it alone waits for all broadcasts, and all wait for it."""
        return cls(ResourceDomain.CLUSTER, "", shared)

    def __str__(self) -> str:
        """For people: `collection_name default:flights (shared)`."""
        text = f"{self.domain.name.lower()} {self.key}".rstrip()
        return f"{text} (shared)" if self.shared else text


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What is asked for.

    `body` is the stored form that all copies share, `size` its estimate in bytes. `ack_sync_up`:
    a vchannel has acknowledged only when its copy was processed, not already when it is durable.
    `request_key` names the request, `fingerprint` its content: the same key with the same content
    is the same broadcast, and never a second one.
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


@dataclass(frozen=True, slots=True)
class BroadcastCopy:
    """The message of one broadcast for one of its vchannels."""

    broadcast_id: BroadcastId
    vchannel: VChannelName
    broadcast: Broadcast


@dataclass(frozen=True, slots=True)
class Broadcasted:
    """A broadcast that took effect, and where its copy landed on each vchannel."""

    id: BroadcastId
    results: Mapping[VChannelName, Appended]
