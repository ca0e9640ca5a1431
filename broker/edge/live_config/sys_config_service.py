"""tidemark.v1.SysConfig: reads and changes the configuration of the cluster."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.coordinator.live_config.messages import (
    ChangeConfig,
    Found,
    GetConfig,
    GetConfigByPrefix,
    ListSettings,
    RequestConfig,
)
from broker.core.live_config.config_keys import shown_key
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refused, StreamingCode
from broker.model.master.live_config import ConfigChange, SettingView
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.SysConfig/"
MSG_TYPE: Final = 105
UNEXPECTED: Final = 1
ILLEGAL: Final = 5
"""Error codes of the early Milvus master."""


class SysConfigService:
    """Request, Get, GetByPrefix, Set, Settings."""

    def __init__(self, middleware: Middleware, sys_config: Proxy) -> None:
        self._middleware = middleware
        self._sys_config = sys_config

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "Request": unary(v1.SysConfigRequest, self.request),
            SERVICE + "Get": unary(v1.GetConfigRequest, self.get),
            SERVICE + "GetByPrefix": unary(v1.GetConfigByPrefixRequest, self.get_by_prefix),
            SERVICE + "Set": unary(v1.SetConfigRequest, self.set),
            SERVICE + "Settings": unary(v1.ConfigSettingsRequest, self.settings),
        }

    async def request(self, request: v1.SysConfigRequest) -> v1.SysConfigResponse:
        """A request of the early Milvus master; its errors are a status in the answer."""
        if request.msg_type not in (0, MSG_TYPE):
            return _failed(ILLEGAL, f"msg_type is {request.msg_type}; send {MSG_TYPE}")
        question = RequestConfig(tuple(request.keys), tuple(request.key_prefixes))
        try:
            found = await self._sys_config.ask(question)
        except Refused as error:
            bad = error.refusal.code is StreamingCode.INVALID_ARGUMENT
            return _failed(ILLEGAL if bad else UNEXPECTED, error.refusal.cause)
        return v1.SysConfigResponse(
            status=v1.SysConfigStatus(),
            keys=[shown_key(it.key) for it in found.entries],
            values=[it.value for it in found.entries],
        )

    async def get(self, request: v1.GetConfigRequest) -> v1.GetConfigResponse:
        """Entries by key; see `GetConfig`."""
        return _found(await self._sys_config.ask(GetConfig(tuple(request.keys))))

    async def get_by_prefix(self, request: v1.GetConfigByPrefixRequest) -> v1.GetConfigResponse:
        """Entries by prefix; see `GetConfigByPrefix`."""
        return _found(await self._sys_config.ask(GetConfigByPrefix(request.prefix)))

    async def set(self, request: v1.SetConfigRequest) -> v1.SetConfigResponse:
        """All changes or none; see `ChangeConfig`."""
        changes = [
            ConfigChange(it.key, it.value, it.expected_revision, it.origin)
            for it in request.changes
        ]
        done = await self._sys_config.ask(ChangeConfig(tuple(changes)))
        return v1.SetConfigResponse(
            revision=done.revision, reached=[*done.nodes.reached], behind=[*done.nodes.behind]
        )

    async def settings(self, _: v1.ConfigSettingsRequest) -> v1.ConfigSettingsResponse:
        """Every setting that may change live; see `ListSettings`."""
        found = await self._sys_config.ask(ListSettings())
        nodes = [
            v1.NodeSettingsState(node_id=node, revision=-1 if revision is None else revision)
            for node, revision in found.nodes
        ]
        return v1.ConfigSettingsResponse(
            revision=found.revision, settings=[_setting(it) for it in found.settings], nodes=nodes
        )


def _failed(code: int, reason: str) -> v1.SysConfigResponse:
    return v1.SysConfigResponse(status=v1.SysConfigStatus(error_code=code, reason=reason))


def _found(found: Found) -> v1.GetConfigResponse:
    entries = [
        v1.ConfigEntry(key=shown_key(it.key), value=it.value, revision=it.revision)
        for it in found.entries
    ]
    return v1.GetConfigResponse(entries=entries, revision=found.revision)


def _setting(view: SettingView) -> v1.LiveSetting:
    return v1.LiveSetting(
        name=view.name,
        started_with=view.started_with,
        stored=view.stored,
        in_force=view.in_force,
        revision=view.revision,
        problem=view.problem,
    )
