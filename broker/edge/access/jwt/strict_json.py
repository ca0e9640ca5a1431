"""JSON objects as they come from outside, read without leniency."""

import json
from typing import Any, Final, NoReturn

DEPTH_MAX: Final = 16


def json_object(data: bytes) -> dict[str, Any]:
    """The object. Raises ValueError, which never holds a part of the data.

    Refused are other values, other encodings than UTF-8, NaN, names that stand twice in an object
    (one reader takes the first, another the last), and nesting deeper than DEPTH_MAX.
    """
    try:
        # Decoded here: json would also take UTF-16 and UTF-32.
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except _Unfit as unfit:
        raise ValueError(str(unfit)) from None
    except ValueError:
        raise ValueError("it is no JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    _check_depth(value)
    return value


class _Unfit(Exception):
    """Valid JSON that is not accepted."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _Unfit("it has an object in which a name stands twice")
    return made


def _constant(_: str) -> NoReturn:
    raise _Unfit("it has NaN or Infinity, which are no JSON")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for it in level
            if isinstance(it, dict | list)
            for inner in (it.values() if isinstance(it, dict) else it)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
