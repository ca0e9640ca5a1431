"""Who is at the other end of a connection: by its certificate, else by its address."""

from typing import Protocol


class ConnectedPeer(Protocol):
    """What grpclib knows of a peer."""

    def addr(self) -> tuple[object, ...] | None:
        """Host and port."""
        ...

    def cert(self) -> dict[str, object] | None:
        """The parsed certificate of a peer that has shown one."""
        ...


def peer_address(peer: ConnectedPeer | None) -> str:
    """HOST:PORT; "" when the connection has gone already."""
    address = peer.addr() if peer is not None else None
    return f"{address[0]}:{address[1]}" if address and len(address) > 1 else ""


def peer_subject(peer: ConnectedPeer | None) -> str:
    """The common name of its certificate; "" for a peer that has shown none."""
    certificate = peer.cert() if peer is not None else None
    subject = (certificate or {}).get("subject", ())
    assert isinstance(subject, tuple), subject
    for part in subject:
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def peer_identity(peer: ConnectedPeer | None) -> str:
    """The common name of its certificate, else its host."""
    return peer_subject(peer) or peer_address(peer).rpartition(":")[0]
