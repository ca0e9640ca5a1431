"""When certificates that this process relies on end, for metrics and warnings."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

WARN = timedelta(days=30)


def ends(cert: Path | None) -> datetime | None:
    """When the first certificate of the file ends, in UTC; None without one that can be read."""
    if cert is None:
        return None
    try:
        return load_pem_x509_certificates(cert.read_bytes())[0].not_valid_after_utc
    except (OSError, ValueError, IndexError):
        return None  # who loads it for a handshake says what is wrong


def first_end(file: Path | None) -> datetime | None:
    """When the first one of all certificates in the file ends; None without one."""
    if file is None:
        return None
    try:
        found = load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError):
        return None
    return min([it.not_valid_after_utc for it in found], default=None)


def expiry_warning(cert: Path | None, now: datetime) -> str:
    """What an operator should read in the last 30 days of the certificate; else empty."""
    until = ends(cert)
    if until is None or until - now > WARN:
        return ""
    if until <= now:
        return (
            f"the certificate {cert} expired at {_day(until)}: clients refuse it; replace the file"
        )
    return (
        f"the certificate {cert} expires at {_day(until)}; replace the file, no restart is needed"
    )


def authority_warning(file: Path | None, now: datetime, what: str) -> str:
    """The same of a file of authorities, or of what is shown to `what`: of any in it."""
    until = first_end(file)
    if until is None or until - now > WARN:
        return ""
    verb = "expired" if until <= now else "expires"
    return (
        f"a certificate in {file} {verb} at {_day(until)}: {what} is not trusted then; replace it"
    )


def _day(until: datetime) -> str:
    return f"{until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
