"""The configuration of a cluster: entries by key, changes of them, and what nodes get of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.model.ids import NodeId

VALUE_BYTES_MAX: Final = 64 * 1024
"""Of one value, in UTF-8."""
KEY_BYTES_MAX: Final = 512
"""Of one key, in UTF-8."""
ENTRIES_MAX: Final = 10_000
"""Of one configuration."""
TOTAL_BYTES_MAX: Final = 3 * 1024 * 1024
"""Of all keys and values: an answer with everything fits the 4 MiB that gRPC clients take."""
CHANGES_MAX: Final = ENTRIES_MAX
"""Of one request."""
KEYS_MAX: Final = ENTRIES_MAX
PREFIXES_MAX: Final = 100
"""Of one question: each prefix may find every entry."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A value with the revision of the change that wrote it."""

    key: str
    value: str
    revision: int


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Set an entry, or delete it (`value` None).

    `expected`: the revision it must have, 0 for none; None: any. `origin`: where the caller read
    it, for errors.
    """

    key: str
    value: str | None
    expected: int | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The stored settings that change live: by name, as text. A later revision replaces all."""

    revision: int = 0
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingView:
    """One setting that may change live. `problem`: why `stored` is not in force; "" when it is."""

    name: str
    started_with: str
    stored: str | None
    in_force: str
    revision: int
    problem: str


@dataclass(frozen=True, slots=True)
class NodesReached:
    """Where changed settings are in effect, and which nodes learn them later."""

    reached: tuple[NodeId, ...] = ()
    behind: tuple[NodeId, ...] = ()
