"""Keeps the configuration of the cluster, and has changed settings applied in every process.

Answers come from memory, which follows the store: a change is shown once it is durable. Settings
reach nodes with their leases; a change asks every node to renew its lease now.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

import anyio
import structlog

from actors import Actor, Backoff, Context, Envelope
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.live_config.config_records import ConfigRecords, Configuration
from broker.coordinator.live_config.messages import (
    ChangeConfig,
    Changed,
    ConfigQuestion,
    Found,
    GetConfig,
    GetConfigByPrefix,
    ListSettings,
    ReachNodes,
    ReadStored,
    RequestConfig,
    SettingsFound,
    SysConfigMessage,
)
from broker.coordinator.retries import Retries
from broker.core.live_config.answers import NoSuchKey, SortedEntries, TooMuch
from broker.core.live_config.changes import Plan, Problem, SettingRules, Unchangeable, Wrong, plan
from broker.core.live_config.config_keys import BadKey, is_setting
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.model.master.live_config import ConfigEntry, NodesReached
from broker.ports.master.live_settings import LiveSettings, NeedsRestart
from broker.ports.meta import MetaError, MetaStore, WriteUnconfirmed
from broker.ports.nodes import NodeControl

REACH_S = 1.0
"""How long a change waits for a node; one that hangs learns it by its lease, or later."""
SILENT_REACH_S = 0.2
"""For one that did not answer the last time: a hanging node delays only one change by REACH_S."""
REACH_AGAIN_S = 0.5
READ_AGAIN = Backoff(first_s=0.5, max_s=5.0)

CODES: Mapping[Wrong, StreamingCode] = {
    Wrong.BAD: StreamingCode.INVALID_ARGUMENT,
    Wrong.RESTART: StreamingCode.UNRECOVERABLE,
    Wrong.MISSING: StreamingCode.CHANNEL_NOT_EXIST,
    Wrong.CONFLICT: StreamingCode.INVALID_REQUEST_SEQ,
}

log = structlog.get_logger(__name__)


class SysConfig(Actor[SysConfigMessage]):
    """See the module. `settings`: those of this process."""

    _context: Context[SysConfigMessage]
    _config: Configuration
    _sorted: SortedEntries

    def __init__(self, store: MetaStore, nodes: LiveNodes, settings: LiveSettings) -> None:
        self._records = ConfigRecords(store)
        self._nodes = nodes
        self._settings = settings
        self._rules = SettingRules(settings.known, self._problem)
        self._changes = 0
        self._timer_set = False
        self._reads = Retries(READ_AGAIN, "configuration not read again yet")
        self._read_timer_set = False
        self._silent: set[NodeId] = set()

    async def started(self, context: Context[SysConfigMessage]) -> None:
        """Read everything, and have the stored settings applied before any request is served."""
        self._context = context
        self._read(await self._records.read())
        self._publish()
        if self._config.settings_revision:
            # A node of this process has no lease, by which the others say what they have.
            self._reach_after(0.0)

    async def receive(self, batch: Sequence[Envelope[SysConfigMessage]]) -> None:
        """Answer changes last, so that the nodes are asked once for all of them."""
        changed: list[tuple[Envelope[SysConfigMessage], int, bool]] = []
        for envelope in batch:
            match envelope.message:
                case ChangeConfig() as request:
                    done = await self._change(request, envelope)
                    if done is not None:
                        changed.append((envelope, *done))
                case ReachNodes():
                    self._timer_set = False
                    await self._reach()
                case ReadStored():
                    self._read_timer_set = False
                    await self._read_if_unfinished()
                case question:
                    self._answer(question, envelope)
        nodes = await self._reach() if any(it[2] for it in changed) else NodesReached()
        for envelope, revision, settings in changed:
            envelope.reply(Changed(revision, nodes if settings else NodesReached()))

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "entries": len(self._config.entries),
            "revision": self._config.revision,
            "changes": self._changes,
            "behind": len(self._behind()),
        }

    def _answer(self, question: ConfigQuestion, envelope: Envelope[SysConfigMessage]) -> None:
        try:
            match question:
                case GetConfig(keys):
                    envelope.reply(self._found(self._sorted.get(keys)))
                case GetConfigByPrefix(prefix):
                    envelope.reply(self._found(self._sorted.by_prefix(prefix)))
                case RequestConfig(keys, prefixes):
                    envelope.reply(self._found(self._sorted.request(keys, prefixes)))
                case ListSettings():
                    envelope.reply(self._list())
                case _:
                    assert_never(question)
        except (BadKey, TooMuch) as error:
            envelope.fail(Refused(StreamingCode.INVALID_ARGUMENT, str(error)))
        except NoSuchKey as error:
            envelope.fail(Refused(StreamingCode.CHANNEL_NOT_EXIST, str(error)))

    async def _change(
        self, request: ChangeConfig, envelope: Envelope[SysConfigMessage]
    ) -> tuple[int, bool] | None:
        """The revision, and whether a setting changed; None: the caller was refused."""
        try:
            if self._records.unfinished:
                await self._read_stored()
            planned = plan(self._config.entries, request.changes, self._rules)
        except Unchangeable as error:
            envelope.fail(Refused(CODES[error.kind], str(error)))
            return None
        except MetaError as error:
            envelope.fail(Refused(StreamingCode.INNER, str(error)))
            return None
        revision = await self._write(planned, envelope)
        if revision is None:
            return None
        self._changes += 1
        self._apply(planned, revision)
        # What is not written yet of a large change is durable, and shown, all the same.
        await self._read_if_unfinished()
        if planned.settings:
            log.warning("settings changed", revision=revision, **_named(planned))
            self._publish()
        return revision, planned.settings

    async def _write(self, planned: Plan, envelope: Envelope[SysConfigMessage]) -> int | None:
        """The revision; None: the caller was refused."""
        try:
            return await self._records.write(
                planned.puts, planned.deletes, settings=planned.settings
            )
        except WriteUnconfirmed as error:
            cause = f"{error}: read the configuration, and repeat the change if it is not there"
            envelope.fail(Refused(StreamingCode.UNKNOWN, cause))
            # No restart for it: one of this actor restarts the Registrar, and several within half
            # a minute the whole coordinator.
            await self._read_if_unfinished()
        except MetaError as error:
            envelope.fail(Refused(StreamingCode.INNER, str(error)))
        return None

    async def _read_if_unfinished(self) -> None:
        """What the store does not answer now is read later, or before the next change."""
        if not self._records.unfinished:
            return
        try:
            await self._read_stored()
        except MetaError as error:
            self._reads.failed(str(error))
            if not self._read_timer_set:
                self._read_timer_set = True
                self._context.after(self._reads.pause_s(self._context.random), ReadStored())

    async def _read_stored(self) -> None:
        """Show what is stored, in place of what is in memory, and apply it. MetaError."""
        known = self._config.settings_revision
        self._read(await self._records.read())
        self._reads.succeeded()
        if self._config.settings_revision != known:
            log.warning("settings changed", revision=self._config.settings_revision)
            self._publish()
            self._reach_after(0.0)

    def _read(self, config: Configuration) -> None:
        self._config = config
        self._sorted = SortedEntries(config.entries)

    def _apply(self, planned: Plan, revision: int) -> None:
        config = self._config
        for key, value in planned.puts.items():
            config.entries[key] = ConfigEntry(key, value, revision)
        for key in planned.deletes:
            del config.entries[key]
        config.revision = revision
        if planned.settings:
            config.settings_revision = revision
        self._read(config)

    def _publish(self) -> None:
        """Apply the stored settings here, and give them to nodes with each lease from now on."""
        stored = self._config.settings()
        # Before nodes are asked to renew: that lease must carry them.
        self._nodes.settings = stored
        self._settings.adopt(stored)

    async def _reach(self) -> NodesReached:
        """Have every node renew its lease; which of them have the settings then."""
        revision = self._config.settings_revision

        async def reach(node: NodeControl) -> None:
            id = node.node_id
            with anyio.move_on_after(SILENT_REACH_S if id in self._silent else REACH_S) as waited:
                try:
                    self._nodes.has_settings(id, await node.refresh_settings(revision))
                except Refused as error:
                    log.info("node not reached", node=id, error=str(error))
            (self._silent.add if waited.cancelled_caught else self._silent.discard)(id)

        behind = self._behind()
        async with anyio.create_task_group() as reaching:
            for node in self._nodes.all():
                if node.node_id in behind:
                    reaching.start_soon(reach, node)
        behind = self._behind()
        # Not for those that take no settings: they would be asked for ever.
        again = [it for it in behind if self._nodes.settings_revisions.get(it, 0) is not None]
        if again:
            self._reach_after(REACH_AGAIN_S)
        reached = [it.node_id for it in self._nodes.all() if it.node_id not in behind]
        return NodesReached(tuple(reached), behind)

    def _reach_after(self, delay_s: float) -> None:
        if not self._timer_set:
            self._timer_set = True
            self._context.after(delay_s, ReachNodes())

    def _behind(self) -> tuple[NodeId, ...]:
        revision = self._config.settings_revision
        known = self._nodes.settings_revisions
        found = [(it.node_id, known.get(it.node_id, 0)) for it in self._nodes.all()]
        # Without stored settings, nothing is missing where none can be taken.
        return tuple([node for node, at in found if (at or 0) < revision])

    def _list(self) -> SettingsFound:
        revisions = {it.key: it.revision for it in self._config.of_settings()}
        views = self._settings.views(self._config.settings(), revisions)
        known = self._nodes.settings_revisions
        # One that said nothing yet was started with none: the node of this process never says it.
        nodes = [(it.node_id, known.get(it.node_id, 0)) for it in self._nodes.all()]
        return SettingsFound(self._config.settings_revision, views, nodes)

    def _found(self, entries: Sequence[ConfigEntry]) -> Found:
        return Found(tuple(entries), self._config.revision)

    def _problem(self, name: str, value: str) -> Problem | None:
        try:
            cause = self._settings.problem(name, value)
        except NeedsRestart as error:
            return Problem(Wrong.RESTART, str(error))
        return Problem(Wrong.BAD, cause) if cause else None


def _named(planned: Plan) -> dict[str, str]:
    """What the log says about a change of settings."""
    found = {}
    puts = [f"{key}={value}" for key, value in planned.puts.items() if is_setting(key)]
    gone = [key for key in planned.deletes if is_setting(key)]
    if puts:
        found["stored"] = ", ".join(puts)
    if gone:
        found["unset"] = ", ".join(gone)
    return found
