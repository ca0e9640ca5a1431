"""Reads the password of an etcd user."""

from pathlib import Path

from broker.ports.meta import MetaError


def etcd_password(file: Path | None) -> str:
    """The password in the file as it is now. Raises MetaError."""
    if file is None:
        return ""
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise MetaError(f"cannot read meta_password_file {file}: {error}") from error
    if not password:
        raise MetaError(f"meta_password_file {file} is empty")
    return password
