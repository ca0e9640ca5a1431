"""The token that a query shows to the broker, found in the process that connects.

An option holds the token or names its file. Without both, the environment of the process does, as
for commands: `TIDEMARK_TOKEN`, else the file that `TIDEMARK_TOKEN_FILE` names.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from socket import gethostname
from typing import Final

from broker.spark.refusals import BadOption

TOKEN_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "token": (
        "none",
        (
            "token of a user, for a broker with `auth`; Spark redacts it, a table does not take it."
            " Else that of the environment, `TIDEMARK_TOKEN` or `TIDEMARK_TOKEN_FILE`"
        ),
    ),
    "tokenFile": (
        "none",
        (
            "instead: file with the token, at this path on the driver and on every executor; read"
            " by each task, and again when the broker refuses the token"
        ),
    ),
}
"""Each option with its default and its meaning, for people."""
OF_ENVIRONMENT: Final = "TIDEMARK_TOKEN_FILE"


def token_options(given: Mapping[str, str]) -> tuple[str, str]:
    """The token and its file as the options say, "" for neither; names in lower case. BadOption."""
    token, file = (given.get(name, "").strip() for name in ("token", "tokenfile"))
    if token and file:
        raise BadOption("tokenFile", file, "token is set, too; use one of them")
    for name, value in (("token", token), ("tokenFile", file)):
        if name.lower() in given and not value:
            raise BadOption(name, "", "it is empty; give it a value, or remove it")
    return token, file


def token_here(token: str, file: str) -> str:
    """The token to show; "" for none. Raises BadOption for a file that holds none."""
    if token:
        return token
    option = "tokenFile"
    if not file:
        if token := os.environ.get("TIDEMARK_TOKEN", "").strip():
            return token
        file, option = os.environ.get(OF_ENVIRONMENT, ""), OF_ENVIRONMENT
    return _read(file, option) if file else ""


def _read(file: str, option: str) -> str:
    try:
        found = Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        # The reason without the content: a wrong byte is part of a secret.
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise BadOption(option, file, f"cannot read it on {gethostname()}: {reason}") from None
    if not found:
        raise BadOption(option, file, f"it is empty on {gethostname()}; it must hold a token")
    return found
