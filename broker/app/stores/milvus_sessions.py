"""Announces the processes of this broker to Milvus's Go clients, which look for them in etcd."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import structlog

from broker.app.stores.etcd_metadata import etcd_tls
from broker.beside import beside
from broker.etcd.leased_keys import RENEWALS_PER_LEASE, TTL_S
from broker.etcd.members import Members
from broker.etcd.milvus_session import (
    MIXCOORD,
    STREAMINGNODE,
    AnnouncedSession,
    MilvusSession,
)
from broker.etcd.password_file import etcd_password
from broker.etcd.place import etcd_place
from broker.ports.meta import MetaError
from broker.process_settings import Settings

log = structlog.get_logger("tidemark")


def coordinator_session(server_id: int, address: str, term: int) -> MilvusSession:
    """A leader. `server_id`: what callers name this process by."""
    return MilvusSession(MIXCOORD, server_id, address, exclusive=True, term=term)


def node_session(node_id: int, address: str, session: int) -> MilvusSession:
    """A node. `session`: it replaces what processes with a smaller one have announced."""
    return MilvusSession(STREAMINGNODE, node_id, address, term=session)


class MilvusSessions:
    """The sessions of this process: put soon after `announce`, and again when they are gone."""

    def __init__(self, members: Members | None, root: str, cluster: str) -> None:
        self._members, self._root, self._cluster = members, root, cluster
        self._announced: list[AnnouncedSession] = []
        self._news = anyio.Event()
        self._told = ""

    def announce(self, session: MilvusSession) -> None:
        """Nothing happens where the settings want none."""
        if self._members is not None:
            made = AnnouncedSession(self._members, session, self._root, self._cluster)
            self._announced.append(made)
            self._news.set()

    async def keep(self) -> None:
        """Put and renew until it is cancelled. A failure is logged, and the process goes on."""
        while True:
            self._news = anyio.Event()
            for each in self._announced:
                try:
                    await each.renew()
                except MetaError as error:
                    self._tell(str(error))
            with anyio.move_on_after(TTL_S / RENEWALS_PER_LEASE):
                await self._news.wait()

    async def end(self) -> None:
        """Take them away; where etcd does not answer, their leases do that."""
        for each in self._announced:
            await each.end()

    def _tell(self, error: str) -> None:
        if error != self._told:
            log.warning("Milvus's clients cannot find this process: retrying", error=error)
        self._told = error


@asynccontextmanager
async def milvus_sessions(settings: Settings, cluster: str) -> AsyncIterator[MilvusSessions]:
    """Sessions that are taken away when the block ends. Raises CannotStart.

    `cluster`: the identity of this one, so that another one on the same root path is noticed.
    """
    if not settings.milvus_root:
        yield MilvusSessions(None, "", cluster)
        return
    place, password = etcd_place(settings.meta), partial(etcd_password, settings.meta_password_file)
    members = Members(place, etcd_tls(settings), password)
    sessions = MilvusSessions(members, settings.milvus_root, cluster)
    try:
        async with beside(sessions.keep):
            yield sessions
    finally:
        with anyio.CancelScope(shield=True):
            await sessions.end()
        members.close()
