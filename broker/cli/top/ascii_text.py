"""Writes the screen for terminals and files that are not Unicode."""

_PLAIN = str.maketrans("▁▂▃▄▅▆▇█…▼▲", "_.:-=+*#~v^")


def ascii_text(text: str) -> str:
    """The text in ASCII, with as many characters; what has no likeness becomes `?`."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode("ascii")


def shows_unicode(encoding: str | None) -> bool:
    """Whether an output of this encoding can show every character."""
    return (encoding or "ascii").lower().replace("-", "").replace("_", "").startswith("utf")
