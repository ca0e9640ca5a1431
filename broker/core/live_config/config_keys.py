"""The form of keys: a path of parts in lower case, such as `app/colour`.

A key of one part is a setting of Tidemark. A key of several parts is free, for applications.
"""

from typing import Final

from broker.model.master.live_config import KEY_BYTES_MAX

SEPARATOR: Final = "/"


class BadKey(ValueError):
    """A key or a prefix that cannot be; the text says why."""


def config_key(text: str) -> str:
    """The key in its one form: lower case, `.` as `/`, without the first `/`. Raises BadKey."""
    key = _lowered(text, "key").removeprefix(SEPARATOR)
    if not key:
        raise BadKey(f"key {text!r} is empty; write a name such as retention_ms or app/colour")
    if not all(key.split(SEPARATOR)):
        raise BadKey(f"key {text!r} has an empty part; write names with one '/' between them")
    return key


def config_prefix(text: str) -> str:
    """The beginning of keys, in the form of `config_key`; "" for all keys. Raises BadKey."""
    return _lowered(text, "prefix").removeprefix(SEPARATOR)


def shown_key(key: str) -> str:
    """The key as answers have it: with the first `/`."""
    return SEPARATOR + key


def is_setting(key: str) -> bool:
    """Whether the key can only be that of a setting of Tidemark."""
    return SEPARATOR not in key


def meant_setting(key: str) -> str:
    """The setting that a free key looks like: `retention/ms` is no setting, `retention_ms` is."""
    return key.replace(SEPARATOR, "_")


def _lowered(text: str, what: str) -> str:
    # Before "." becomes "/": two dots must not become an empty part.
    if ".." in text:
        raise BadKey(f"{what} {text!r} contains '..'; name it from the root")
    if not text.isprintable():
        raise BadKey(f"{what} {text!r} contains a control character; use printable text")
    lowered = text.lower().replace(".", SEPARATOR)
    size = len(lowered.encode())
    if size > KEY_BYTES_MAX:
        raise BadKey(
            f"{what} {text[:40]!r}... has {size} bytes; the limit is {KEY_BYTES_MAX}: shorten it"
        )
    return lowered
