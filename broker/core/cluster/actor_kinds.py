"""Kinds of actors: what their paths have in common once the numbers are taken out.

Owns one rule: a name with a digit in it is one of many, and its kind is told by where it stands.
So summaries and metrics have few names, however many channels and consumers there are.
"""

import itertools
import re

ONE_OF_MANY = "*"
PAUSED = "consumption_paused"
"""In the statistics of who knows it: 1 while consumers that begin are held back."""
_NUMBERED = re.compile(r"[^A-Za-z]*[0-9].*")
_DIGIT = re.compile(r"[0-9]")
_HOLDERS = ("channels", "reconcilers")
"""Whose children are named for pchannels."""


def shape_of(path: str) -> str:
    """The path with `*` for each name that is one of many."""
    return "/".join(ONE_OF_MANY if _DIGIT.search(name) else name for name in path.split("/"))


def kind_of(path: str) -> str:
    """`appender`, `scanner`, ...: the last name, or what those in its place are called."""
    *above, name = shape_of(path).split("/")
    if name != ONE_OF_MANY:
        return name
    holder = next((it for it in reversed(above) if it not in ("", ONE_OF_MANY)), "actors")
    if holder.endswith("s"):
        return holder.removesuffix("s")
    return _NUMBERED.sub("", path.rpartition("/")[2]) or holder


def pchannel_in(path: str) -> str:
    """The pchannel that an actor belongs to; "" when it belongs to none."""
    names = path.split("/")
    for holder, name in itertools.pairwise(names):
        if holder in _HOLDERS:
            return name
    return ""
