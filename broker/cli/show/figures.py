"""Writes numbers in few characters: never cut, about three digits, and larger ones never read less.

Exact numbers are in `--json`.
"""

import math

COUNT_WIDTH = 5
SIZE_WIDTH = 8
SPAN_WIDTH = 7

_COUNT_UNITS = ("k", "M", "G", "T", "P", "E")
_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_LONGEST_YEARS = 999
_LEVELS = "▁▂▃▄▅▆▇█"


def count_text(value: float) -> str:
    """A number of things, or of things per second, in at most `COUNT_WIDTH` characters.

    Exact for integers below 1,000; `12.3k`, `4.10M`. Values below 0 are shown as 0, and those that
    are too small to write as `<0.01`.
    """
    if value <= 0:
        return "0"
    if isinstance(value, int) and value < 1000:
        return str(value)
    if value < 0.005:
        return "<0.01"
    if value < 9.95:
        return f"{value:.2f}" if value < 0.995 else f"{value:.1f}"
    if value < 999.5:
        return f"{value:.0f}"
    return _in_units(value, 1000.0, _COUNT_UNITS, "")


def size_text(count: float) -> str:
    """A number of bytes in at most `SIZE_WIDTH` characters: `973 B`, `12.3 KiB`, `4.10 GiB`."""
    if count <= 0:
        return "0 B"
    if count < 999.5:
        return f"{math.ceil(count)} B" if count < 1 else f"{count:.0f} B"
    return _in_units(count, 1024.0, _SIZE_UNITS, " ")


def span_text(seconds: float) -> str:
    """A length of time in at most `SPAN_WIDTH` characters: `0.2 s`, `12 min`, `1.7 h`, `365 d`."""
    seconds = max(0.0, seconds)
    if seconds < 99.5:
        return _short(seconds, "s")
    if seconds < 99.5 * _MINUTE:
        return _short(seconds / _MINUTE, "min")
    if seconds < 47.5 * _HOUR:
        return _short(seconds / _HOUR, "h")
    days = seconds / _DAY
    if days < 1094.5:
        return _short(days, "d")
    years = seconds / _YEAR
    return _short(years, "y") if years <= _LONGEST_YEARS else f">{_LONGEST_YEARS} y"


def sparkline(values: "list[float | None]") -> str:
    """One character for each value, the lowest for 0; a space where nothing was measured."""
    highest = max((it for it in values if it), default=0.0)
    return "".join(" " if it is None else _level(it, highest) for it in values)


def _level(value: float, highest: float) -> str:
    if value <= 0:
        return _LEVELS[0]
    # A value above 0 never looks like 0.
    return _LEVELS[max(1, min(7, math.ceil(7 * value / highest)))]


def _short(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def _in_units(value: float, step: float, units: tuple[str, ...], gap: str) -> str:
    for unit in units:
        value /= step
        text = _three_digits(value)
        if text is not None:
            return f"{text}{gap}{unit}"
    return f">999{gap}{units[-1]}"


def _three_digits(value: float) -> str | None:
    """At most four characters; None when the next unit is needed."""
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 999.5 else None
