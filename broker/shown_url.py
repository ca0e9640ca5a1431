"""A URL as errors may show it: they reach terminals, journals and other people."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

HIDDEN: Final = "..."
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OPTION: Final = re.compile(r"([?&#])([^=&#]*)=")


@dataclass(frozen=True, slots=True)
class ShownUrl:
    """`text`: the URL without what may be secret. It is the URL itself unless the others are set.

    `has_user`: a user or a password stood in it. `unknown`: the name of an option whose value may
    be anything.
    """

    text: str
    has_user: bool = False
    unknown: str | None = None


def shown_url(url: str, known: Collection[str] = ()) -> ShownUrl:
    """Hide what stands before `@`, and all behind an option whose name is not `known`.

    Also where the URL is not well formed: a password may have any letter, and stand anywhere.
    """
    known_at = end = len(url)
    unknown: str | None = None
    for it in _OPTION.finditer(url):
        if it[1] == "?" and it.start() != url.index("?"):
            continue  # in a value
        if unquote_plus(it[2]) in known:
            known_at = min(known_at, it.start())
        elif unknown is None:
            end, unknown = it.end(), it[2]
    scheme = _SCHEME.match(url)
    begin = scheme.end() if scheme else 0
    # An `@` in the value of a known option is no end of a user: it may be the name of a file.
    at = url.rfind("@", 0, known_at)
    user, behind = (f"{HIDDEN}@", at + 1) if at >= 0 else ("", begin)
    rest = url[behind:end] if unknown is None else f"{url[behind:end]}{HIDDEN}"
    return ShownUrl(f"{url[:begin]}{user}{rest}", at >= 0, unknown)
