"""When the certificate of this process ends, for metrics and warnings."""

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


def expiry_warning(cert: Path | None, now: datetime) -> str:
    """What an operator should read in the last 30 days of the certificate; else empty."""
    until = ends(cert)
    if until is None or until - now > WARN:
        return ""
    day = f"{until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if until <= now:
        return f"the certificate {cert} expired at {day}: clients refuse it; replace the file"
    return f"the certificate {cert} expires at {day}; replace the file, no restart is needed"
