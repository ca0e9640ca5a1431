"""`tidemark auth bootstrap`: an administrator in the data folder of a broker that does not run."""

import asyncio
import os
from pathlib import Path
from typing import Any

from broker.app.process_errors import CannotStart
from broker.app.security.bootstrap import bootstrap_administrator
from broker.cli.session import USAGE, fail
from broker.cli.show.output import show
from broker.config import load_settings
from broker.config_file import BadConfig


def make_administrator(given: dict[str, Any], user: str, out: Path | None) -> None:
    """Print the token, or write it to a new file that only its owner reads."""
    try:
        settings = load_settings(given)
    except BadConfig as error:
        fail(str(error), USAGE)
    if out is not None and out.exists():
        fail(f"{out} exists; name a new file for the token", USAGE)
    try:
        token = asyncio.run(bootstrap_administrator(settings, user))
        if out is not None:
            write_private(out, token)
    except (CannotStart, OSError) as error:
        fail(str(error))
    show(token if out is None else f"{user} administers {settings.data_dir}; the token is in {out}")


def write_private(file: Path, token: str) -> None:
    """Write the token to a new file with mode 0600, durably. OSError."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(token + "\n")
        out.flush()
        os.fsync(out.fileno())
