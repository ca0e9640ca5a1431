"""Reads the settings of a process: from flags, else `TIDEMARK_*` variables, else the file.

`load_settings` reads and checks all of them; it may be called again to see what has changed.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.config_file import CLIENT_TABLE, CONFIG_FILE, BadConfig, nearest
from broker.process_settings import PREFIX, GivenSettings, Settings

CHOICES = re.compile(r"\^\((\w+(?:\|\w+)*)\)\$")
"""Matches a pattern that is a list of words."""


def changed_settings(settings: Settings, values: Mapping[str, str]) -> Settings:
    """The settings with these values, given as text; checked by the rules of a start.

    Raises BadConfig with everything that is wrong, in one sentence.
    """
    try:
        checked = GivenSettings(**{**dict(settings), **values})
    except ValidationError as error:
        wrong = [_wrong(each) for each in error.errors()]
        raise BadConfig("; ".join(wrong)) from None
    return settings.model_copy(update={name: getattr(checked, name) for name in values})


def load_settings(given: Mapping[str, Any]) -> Settings:
    """Read the environment and the file, and check all of it before anything is used.

    `given`: settings from flags; None stands for a flag that was not given. To reload, call it
    again with the same flags. Raises BadConfig with everything that is wrong, in one sentence.
    """
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**flags)
    except ValidationError as error:
        file = str(flags.get("config") or os.environ.get(f"{PREFIX}CONFIG") or CONFIG_FILE)
        wrong = [_refusal(each, flags, file) for each in error.errors()]
        raise BadConfig("; ".join(wrong)) from None


def _refusal(error: ErrorDetails, flags: Mapping[str, Any], file: str) -> str:
    name = _name(error)
    if error["type"] == "extra_forbidden":
        known = [*Settings.model_fields, CLIENT_TABLE]
        return f"{name!r} in {file} is not a setting{nearest(name, known)}"
    wrong = _wrong(error)
    return f"{wrong} ({_origin(name, flags, file)})" if name else wrong


def _wrong(error: ErrorDetails) -> str:
    # A rule over several settings names them itself.
    name, reason = _name(error), _reason(error)
    return f"setting {name}: {reason}" if name else reason


def _name(error: ErrorDetails) -> str:
    return ".".join(str(part) for part in error["loc"])


def _reason(error: ErrorDetails) -> str:
    reason, value = error["msg"], repr(error["input"])
    if error["type"] == "value_error":  # our own messages already name the value
        return reason.removeprefix("Value error, ")
    choices = CHOICES.fullmatch(error.get("ctx", {}).get("pattern", ""))
    if choices:
        reason = "must be " + " or ".join(choices[1].split("|"))
    return f"{reason.replace('Input should', 'must')}, not {value}"


def _origin(name: str, flags: Mapping[str, Any], file: str) -> str:
    if name in flags:
        return f"--{name.replace('_', '-')}"
    # Pydantic reads variables in any case.
    variables = {it.upper(): it for it in os.environ}
    return variables.get(f"{PREFIX}{name.upper()}", file)


def as_environment(settings: Settings) -> dict[str, str]:
    """The settings as environment variables of another process."""
    # None has no form as a variable; every setting that may be None has it as its default.
    return {f"{PREFIX}{name.upper()}": str(it) for name, it in settings if it is not None}


def misspelt(names: Iterable[str]) -> list[str]:
    """Environment variables that begin like settings, but are not settings."""
    # The last ones are read by the commands that call a server.
    of_commands = ["SERVER", "PROFILE", "TOKEN", "TOKEN_FILE"]
    known = {f"{PREFIX}{name.upper()}" for name in [*Settings.model_fields, *of_commands]}
    return sorted(name for name in names if name.startswith(PREFIX) and name not in known)
