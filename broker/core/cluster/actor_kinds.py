"""The kind of an actor by its path: the path without names that carry numbers.

Summaries and metrics are labelled by kind, so the number of labels stays small however many
channels and consumers there are.
"""

import itertools
import re

ONE_OF_MANY = "*"
PAUSED = "consumption_paused"
"""Statistics key of the actors that know it: 1 while new consumers are held back."""
_NUMBERED = re.compile(r"[^A-Za-z]*[0-9].*")
_DIGIT = re.compile(r"[0-9]")
_HOLDERS = ("channels", "reconcilers")
"""Actors whose children are named after pchannels."""


def shape_of(path: str) -> str:
    """The path with `*` for each name that contains a digit, such as a channel or a number."""
    return "/".join(ONE_OF_MANY if _DIGIT.search(name) else name for name in path.split("/"))


def kind_of(path: str) -> str:
    """`appender`, `scanner`, ...: the last name; for a numbered actor its parent's singular."""
    *above, name = shape_of(path).split("/")
    if name != ONE_OF_MANY:
        return name
    holder = next((it for it in reversed(above) if it not in ("", ONE_OF_MANY)), "actors")
    if holder.endswith("s"):
        return holder.removesuffix("s")
    # The holder's name is no plural, so the kind is the name up to its number: "writer" of
    # "writer-12".
    return _NUMBERED.sub("", path.rpartition("/")[2]) or holder


def pchannel_in(path: str) -> str:
    """The pchannel that an actor belongs to; "" if none."""
    names = path.split("/")
    for holder, name in itertools.pairwise(names):
        if holder in _HOLDERS:
            return name
    return ""
