"""Who may read a page of the HTTP port that has names in it, while access is controlled.

By the same proof as calls: `Authorization: Bearer TOKEN`, of ours or of an identity provider, or
without one the certificate of a user. The port lets in who shows none, since probes have none.
"""

from http import HTTPStatus
from typing import Final

from broker.app.probes.http_server import PageAnswer, PageRequest
from broker.edge.rpc.access.access import OBSERVE
from broker.edge.rpc.access.gate import AUTHORIZATION, AccessGate
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.model.failure import Refusal, Refused, StreamingCode

ASKS: Final = 'WWW-Authenticate: Bearer realm="tidemark"'


class PageReaders:
    """One for a process. They need `observe` of the cluster."""

    def __init__(self, gate: AccessGate, audit: AuditTrail) -> None:
        self._gate = gate
        self._audit = audit

    async def refused(self, path: str, request: PageRequest) -> PageAnswer | None:
        """The answer to who may not read the page; None for who may, and without control."""
        gate, user = self._gate, ""
        if not gate.controls:
            return None
        shown = request.headers.get(AUTHORIZATION, "")
        # Nothing else: the secret of the cluster's processes is no proof here.
        metadata = {AUTHORIZATION: shown} if shown else {}
        try:
            peer = _Peer(request)
            await gate.prepare(metadata, peer)
            access = gate.enter(metadata, peer)
            user = access.name
            try:
                await access.need(OBSERVE, (gate.names.cluster,))
            finally:
                gate.leave(access)
        except Refused as refused:
            refusal = refused.refusal
            self._audit.page_refused(path, request.address, refusal.code.name, user)
            return _answer(refusal)
        return None


class _Peer:
    """Who sent a request, as the gate asks."""

    def __init__(self, request: PageRequest) -> None:
        self._request = request

    def addr(self) -> tuple[object, ...] | None:
        host, _, port = self._request.address.rpartition(":")
        return host, port

    def cert(self) -> dict[str, object] | None:
        return self._request.certificate


def _answer(refusal: Refusal) -> PageAnswer:
    body = f"{refusal.cause}\n".encode()
    match refusal.code:
        case StreamingCode.NOT_AUTHENTICATED:
            return PageAnswer(body, status=HTTPStatus.UNAUTHORIZED, headers=(ASKS,))
        case StreamingCode.PERMISSION_DENIED:
            return PageAnswer(body, status=HTTPStatus.FORBIDDEN)
        case _:
            return PageAnswer(body, status=HTTPStatus.SERVICE_UNAVAILABLE)
