"""TLS for listeners and for connections, from PEM files that may be replaced while they are in use.

TLS 1.2 is the oldest version spoken. A file that changed is read at the next handshake; while new
files are unusable (half written, say), the last usable ones stay in use.
"""

import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

logger = logging.getLogger("tidemark.tls")

Stamps = tuple[tuple[int, int, int], ...]
"""What changes when a file is replaced: inode, size and time of change of each."""


class BadTls(ValueError):
    """Files of TLS that cannot be used. The text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a client connects with TLS: whom it trusts, and how it shows who it is. PEM files.

    `ca`: certificates of the authorities to trust; None trusts those that the system trusts.
    `cert` and `key`: a certificate with its chain, and its private key, for servers that ask.
    """

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The certificate and key of a server; `client_ca`: who signs clients.

    With it each must show a certificate, or may, if they are `client_optional`.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_optional: bool = False


class Reloaded:
    """A context made of files, made again once one of them has changed. Raises BadTls at first."""

    def __init__(self, files: Iterable[Path], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = tuple(files)
        self._make = make
        # Before the files are read: what changes meanwhile is read again.
        self._stamps = _stamps(self._files)
        self._context = make()

    def context(self) -> ssl.SSLContext:
        """The context of the files as they are now, or as they last were usable."""
        stamps = _stamps(self._files)
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
            except BadTls as error:
                logger.warning("keeping the earlier certificates: %s", error)
            else:
                logger.info("read changed certificates")
        return self._context


class ServerTls:
    """The TLS of a listener. Raises BadTls for files that cannot be used.

    `protocol`: what is spoken over it, by its name in ALPN (RFC 7301).
    """

    def __init__(self, files: ServerFiles, protocol: str = "h2") -> None:
        self.files = files
        named = [it for it in (files.cert, files.key, files.client_ca) if it is not None]
        self._current = Reloaded(named, lambda: _server_context(files, protocol))

    def context(self) -> ssl.SSLContext:
        """For the next connection. Sessions of earlier files cannot be resumed in it."""
        return self._current.context()


class LoggedHandshake(ssl.SSLObject):
    """A server's side of a connection; logs why a handshake failed, as peers are not told."""

    def do_handshake(self) -> None:
        """As Python's."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLCertVerificationError as error:
            logger.info(
                "refused a client: its certificate is not accepted: %s", error.verify_message
            )
            raise
        except ssl.SSLError as error:
            logger.info("refused a client: the handshake of TLS failed: %s", error.reason or error)
            raise


class ClientTls:
    """The TLS of connections to servers. Raises BadTls for files that cannot be used."""

    def __init__(self, tls: Tls) -> None:
        named = [Path(it) for it in (tls.ca, tls.cert, tls.key) if it is not None]
        self._current = Reloaded(named, lambda: _client_context(tls))
        self._shows_certificate = tls.cert is not None

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._current.context()

    def why_refused(self) -> str:
        """Why a server may have ended a connection that was just opened. Servers tell no more."""
        if not self._shows_certificate:
            return (
                "it ended the handshake: it asks clients for a certificate, pass cert and key; or"
                " it went away, or takes no more connections"
            )
        return (
            "it ended the handshake: it does not accept this client's certificate, which has"
            " expired or is of an authority that it does not know (its log says which, at log_level"
            " warning,tidemark.tls=info); or it went away, or takes no more connections"
        )


def _server_context(files: ServerFiles, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = LoggedHandshake
    _harden(context, protocol)
    # A client that resumes a session is not asked for its certificate, which may have expired.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    _load_own(context, files.cert, files.key)
    if files.client_ca is not None:
        _load_trusted(context, files.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if files.client_optional else ssl.CERT_REQUIRED
    return context


def _client_context(tls: Tls) -> ssl.SSLContext:
    if (tls.cert is None) != (tls.key is None):
        given, missing = ("cert", "key") if tls.key is None else ("key", "cert")
        raise BadTls(f"{given} is given without {missing}: a certificate needs its private key")
    context = ssl.create_default_context() if tls.ca is None else _trusting(Path(tls.ca))
    _harden(context, "h2")
    if tls.cert is not None and tls.key is not None:
        _load_own(context, Path(tls.cert), Path(tls.key))
    return context


def _trusting(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and host names
    _load_trusted(context, ca)
    return context


def _harden(context: ssl.SSLContext, protocol: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    # RFC 9113, 9.2.1. Renegotiation could also be forced on us again and again.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_own(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    for file in (cert, key):
        _check_readable(file)

    def no_password() -> str:
        raise BadTls(
            f"the key {key} is encrypted; give one without a password, readable by us only"
        )

    try:
        context.load_cert_chain(cert, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            cause = f"{key} is not the private key of the certificate {cert}"
        else:
            cause = f"no PEM certificate in {cert}, or no PEM private key in {key}"
        raise BadTls(f"{cause} ({error.reason or error})") from None
    except OSError as error:  # replaced since the check
        raise BadTls(f"cannot read {cert} or {key}: {error.strerror}") from None


def _load_trusted(context: ssl.SSLContext, ca: Path) -> None:
    _check_readable(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise BadTls(f"no PEM certificates in {ca} ({error.reason or error})") from None
    except OSError as error:  # replaced since the check
        raise BadTls(f"cannot read {ca}: {error.strerror}") from None


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise BadTls(f"cannot read {file}: {error.strerror}") from None


def _stamps(files: tuple[Path, ...]) -> Stamps:
    return tuple([_stamp(file) for file in files])


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        about = file.stat()
    except OSError:
        return 0, 0, 0
    return about.st_ino, about.st_size, about.st_mtime_ns


LOST_IN_HANDSHAKE = "it went away during the handshake of TLS"


def is_lost(error: ssl.SSLError) -> bool:
    """Whether the server, or a proxy in front of it, went away or failed: no check of ours did."""
    ended = isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError)
    return ended or error.reason in ("TLSV1_ALERT_INTERNAL_ERROR", "TLSV1_ALERT_USER_CANCELLED")


def failed_check(error: ssl.SSLError) -> str:
    """Which check of a handshake failed, in words, as seen by the client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "it does not speak TLS; connect without"
    return f"the handshake of TLS failed: {reason or error}"
