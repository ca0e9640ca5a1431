"""The messages of SysConfig. Requests that fail raise Refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from actors import Request
from broker.model.ids import NodeId
from broker.model.master.live_config import ConfigChange, ConfigEntry, NodesReached, SettingView


@dataclass(frozen=True, slots=True)
class Found:
    """Entries, and the revision of the whole configuration."""

    entries: Sequence[ConfigEntry]
    revision: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The revision of a change, and where the settings of it are in effect."""

    revision: int
    nodes: NodesReached


@dataclass(frozen=True, slots=True)
class SettingsFound:
    """Every setting that may change live, and the revision that each node has (None: not known)."""

    revision: int
    settings: Sequence[SettingView]
    nodes: Sequence[tuple[NodeId, int | None]]


@dataclass(frozen=True, slots=True)
class GetConfig(Request[Found]):
    """The entries of these keys. CHANNEL_NOT_EXIST for one that is missing."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetConfigByPrefix(Request[Found]):
    """The entries whose key begins with this text, by key."""

    prefix: str


@dataclass(frozen=True, slots=True)
class RequestConfig(Request[Found]):
    """Those of the prefixes, then those of the keys, each once; refused as GetConfig."""

    keys: tuple[str, ...]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeConfig(Request[Changed]):
    """Apply all changes or none; see the service for the codes of a refusal.

    Refused(INNER): nothing has changed; Refused(UNKNOWN): the store has not said whether it has.
    """

    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True)
class ListSettings(Request[SettingsFound]):
    """Every setting that may change live."""


@dataclass(frozen=True, slots=True)
class ReachNodes:
    """A timer: tell the nodes that have older settings."""


@dataclass(frozen=True, slots=True)
class ReadStored:
    """A timer: finish a large change, or learn the outcome of one whose answer was lost."""


ConfigQuestion = GetConfig | GetConfigByPrefix | RequestConfig | ListSettings
SysConfigMessage = ConfigQuestion | ChangeConfig | ReachNodes | ReadStored
