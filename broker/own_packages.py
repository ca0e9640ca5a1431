"""Refuses to start where a program's own module hides one of Tidemark's packages.

They have plain names, and Python takes the first module of a name that it finds: a `schemas.py` in
the working directory would be imported in place of ours, and something would fail far from there.
It imports nothing of ours at its top: `tidemark_command` loads it where `broker` itself is hidden.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

MARKS = {"broker": "data_folder.py", "schemas": "wire.py", "actors": "supervisor.py"}
"""Our packages, each with a module that it has."""


class HiddenPackage(ImportError):
    """One of Tidemark's packages cannot be imported; the message names the file in its place."""


def refuse_hidden() -> None:
    """Raise HiddenPackage if another module is found in place of one of ours."""
    for name, mark in MARKS.items():
        place = _found_instead(name, mark)
        if place is not None:
            kind = "folder" if place.is_dir() else "file"
            raise HiddenPackage(
                f"{place} hides Tidemark's package {name!r}, because Python finds it first: rename"
                f" that {kind}, or remove its folder from PYTHONPATH and from the place where"
                " Python starts",
                name=name,
                path=str(place),
            )


def run() -> None:
    """The `tidemark` command: `broker.cli.main.run`, or one sentence about what hides it."""
    try:
        refuse_hidden()
    except HiddenPackage as error:
        sys.exit(f"tidemark: {error}")
    from broker.cli.main import run as run_command  # noqa: PLC0415 - it may not be there

    run_command()


def _found_instead(name: str, mark: str) -> Path | None:
    """The module that `import name` finds, unless it is ours; None also if there is none."""
    try:
        found = find_spec(name)
    except (ImportError, ValueError):  # a module in sys.modules that was not imported from a file
        return None
    if found is None:
        return None
    folders = [Path(it) for it in found.submodule_search_locations or ()]
    if any((folder / mark).is_file() for folder in folders):
        return None
    return folders[0] if folders else Path(found.origin or name)
