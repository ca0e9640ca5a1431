"""`tidemark meta copy`."""

import json
import sys
from dataclasses import asdict
from typing import Any

import anyio

from broker.app import CannotStart
from broker.app.stores.metadata_copy import to_etcd, to_sqlite
from broker.cli.session import INTERRUPTED, USAGE, fail
from broker.config import load_settings
from broker.config_file import BadConfig
from broker.data_folder import DataFolderError


def copy_metadata(given: dict[str, Any], *, back: bool, as_json: bool) -> None:
    """Copy, and print what. Ends the program with one sentence on failure."""
    try:
        settings = load_settings(given)
    except BadConfig as error:
        fail(str(error), USAGE)
    if not settings.meta:
        fail("name etcd with --meta etcd://HOST:PORT/PREFIX", USAGE)
    try:
        copied = anyio.run(to_sqlite if back else to_etcd, settings)
    except (CannotStart, DataFolderError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; repeat the command before you start the broker", INTERRUPTED)
    if as_json:
        sys.stdout.write(json.dumps(asdict(copied)) + "\n")
        return
    sys.stdout.write(
        f"copied and compared: {copied.entries:,} entries, {copied.bytes:,} bytes,"
        f" from {copied.source} to {copied.target}\n"
    )
