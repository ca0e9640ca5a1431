"""The configuration of the cluster: live settings, and free keys of applications.

async with connect("127.0.0.1:19531") as log:
    await log.config.set("retention_ms", "86400000")      # in effect in every process
    await log.config.set("app/colour", "blue")            # kept for applications
    (colour,) = await log.config.get(["app/colour"])
    print(colour.value, colour.revision)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    ChannelNotExist,
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequestSequence,
    OutcomeUnknown,
    ServerRefusal,
    TidemarkError,
    UnknownRefusal,
    Unrecoverable,
)
from broker.client.net.connection import Connection
from broker.model.failure import StreamingCode
from broker.model.master.live_config import ConfigChange, ConfigEntry, SettingView
from schemas.generated.tidemark import v1


class NoSuchConfigKey(ServerRefusal):
    """No entry has this key; nothing was changed."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class SettingNeedsRestart(ServerRefusal):
    """The setting does not change while the cluster runs; nothing was changed."""

    expected = StreamingCode.UNRECOVERABLE


class ConfigConflict(ServerRefusal):
    """An entry is not at the expected revision: somebody changed it. Nothing was changed."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A durable change. `reached`: nodes on which changed settings are in effect.

    `behind`: nodes that were not reached; they take the settings over with their lease.
    """

    revision: int
    reached: tuple[int, ...]
    behind: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """The settings that may change live. `nodes`: the revision that each has; None: not known."""

    revision: int
    settings: tuple[SettingView, ...]
    nodes: Mapping[int, int | None]


class ClusterConfig:
    """`log.config`. Every call has a deadline and raises what `broker.client.errors` has.

    A key is a path such as "app/colour", in any case; "." counts as "/", and a first "/" may stand
    there. A key of one part is a setting of Tidemark, one of several parts is free: a value of up
    to 64 KiB, 10,000 entries and 3 MiB in all. No release gives keys below "app/" a meaning.
    """

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.SysConfig", deadline_s=deadline_s)
        self._deadline_s = deadline_s

    async def get(self, keys: Sequence[str]) -> list[ConfigEntry]:
        """The entries of these keys, in this order. Raises NoSuchConfigKey when one is missing."""
        request = v1.GetConfigRequest(keys=list(keys))
        return await self._entries("Get", request)

    async def get_by_prefix(self, prefix: str = "/") -> list[ConfigEntry]:
        """The entries whose key begins with this text, by key: "/ma" finds "/master/address"."""
        return await self._entries("GetByPrefix", v1.GetConfigByPrefixRequest(prefix=prefix))

    async def set(
        self, key: str, value: str, *, expected_revision: int | None = None
    ) -> ConfigChanged:
        """Set one entry; a setting is in effect in all reached processes when this returns.

        `expected_revision`: the one that the entry must have, 0 for none. Raises InvalidArgument
        for a bad key or value, SettingNeedsRestart for a setting that is not live, ConfigConflict.
        """
        return await self.apply([ConfigChange(key, value, expected_revision)])

    async def delete(self, key: str, *, expected_revision: int | None = None) -> ConfigChanged:
        """Delete one entry; a setting returns to what each process was started with."""
        return await self.apply([ConfigChange(key, None, expected_revision)])

    async def apply(self, changes: Iterable[ConfigChange]) -> ConfigChanged:
        """Apply all changes or none; the error names everything that is wrong.

        OutcomeUnknown when the answer was lost and the changes expect revisions; changes without
        are repeated until the deadline.
        """
        asked = list(changes)
        request = v1.SetConfigRequest(changes=[_encoded(it) for it in asked])
        conditional = any(it.expected is not None or it.value is None for it in asked)
        unsure: list[TidemarkError] = []

        async def attempt() -> v1.SetConfigResponse:
            try:
                return await self._set(request)
            except (ConnectionLost, DeadlineExceeded, UnknownRefusal) as error:
                unsure.append(error)
                raise

        try:
            answer = await (attempt() if conditional else retried(attempt, self._deadline_s))
        except TidemarkError as error:
            # Whatever a later attempt was told: an earlier one may have been stored.
            if not unsure and not isinstance(error, DeadlineExceeded):
                raise
            raise OutcomeUnknown(
                f"{error}; the configuration may have been changed: read it again"
            ) from error
        return ConfigChanged(answer.revision, tuple(answer.reached), tuple(answer.behind))

    async def load(self, path: str | Path) -> ConfigChanged:
        """Set what a YAML file, or every *.yaml of a folder, says: all of it or nothing.

        Keys are lower-cased, "." and nesting become "/"; lists, and maps within lists, are stored
        as JSON, null as "". Raises BadConfigFile, or the refusal of the server; both name the file
        and the line.
        """
        # It imports a reader of YAML, which other programs need not wait for.
        from broker.client.master.config_files import changes_of  # noqa: PLC0415

        return await self.apply(changes_of(Path(path)))

    async def settings(self) -> ConfigReport:
        """Every setting that may change live: its value at the start, stored, and in force."""

        async def ask() -> v1.ConfigSettingsResponse:
            request = v1.ConfigSettingsRequest()
            return await self._calls.ask("Settings", request, v1.ConfigSettingsResponse)

        answer = await retried(ask, self._deadline_s)
        views = [
            SettingView(it.name, it.started_with, it.stored, it.in_force, it.revision, it.problem)
            for it in answer.settings
        ]
        nodes = {it.node_id: None if it.revision < 0 else it.revision for it in answer.nodes}
        return ConfigReport(answer.revision, tuple(views), nodes)

    async def _entries(
        self, method: str, request: v1.GetConfigRequest | v1.GetConfigByPrefixRequest
    ) -> list[ConfigEntry]:
        async def ask() -> v1.GetConfigResponse:
            try:
                return await self._calls.ask(method, request, v1.GetConfigResponse)
            except ChannelNotExist as error:
                raise NoSuchConfigKey(error.cause) from None

        answer = await retried(ask, self._deadline_s)
        return [ConfigEntry(it.key, it.value, it.revision) for it in answer.entries]

    async def _set(self, request: v1.SetConfigRequest) -> v1.SetConfigResponse:
        try:
            return await self._calls.ask("Set", request, v1.SetConfigResponse)
        except ChannelNotExist as error:
            raise NoSuchConfigKey(error.cause) from None
        except InvalidRequestSequence as error:
            raise ConfigConflict(error.cause) from None
        except Unrecoverable as error:
            raise SettingNeedsRestart(error.cause) from None


def _encoded(change: ConfigChange) -> v1.ConfigChange:
    return v1.ConfigChange(
        key=change.key,
        value=change.value,
        expected_revision=change.expected,
        origin=change.origin,
    )
