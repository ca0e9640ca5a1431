"""Certificates in files, for tests with TLS."""

from datetime import UTC, datetime
from pathlib import Path

from broker.app.security.certificate_authority import Authority, Issued
from broker.transport.tls import ServerFiles, Tls

HOSTS = ("127.0.0.1", "localhost")


class Authorities:
    """One authority whose files lie in a folder: `ca.pem`, and `NAME.pem` with `NAME.key`."""

    def __init__(self, folder: Path, name: str = "test") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._authority = Authority(name, datetime.now(UTC))
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self._authority.own.cert)

    def issue(self, name: str, *hosts: str, days: int = 30) -> tuple[Path, Path]:
        """Certificate and key of this subject."""
        return self.write(name, self._authority.issue(name, hosts, days))

    def write(self, name: str, issued: Issued) -> tuple[Path, Path]:
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert.write_bytes(issued.cert)
        key.write_bytes(issued.key)
        key.chmod(0o600)
        return cert, key

    def server(self, *, asks: bool = True, days: int = 30) -> ServerFiles:
        """Of a server on loopback; `asks`: clients must show a certificate."""
        cert, key = self.issue("server", *HOSTS, days=days)
        return ServerFiles(cert, key, self.ca if asks else None)

    def client(self, name: str = "client", *, days: int = 30) -> Tls:
        """Of a client that trusts this authority and shows a certificate of it."""
        cert, key = self.issue(name, days=days)
        return Tls(self.ca, cert, key)
