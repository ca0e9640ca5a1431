"""The `tidemark` command, as a module that is found even if a program's own `broker` hides ours.

A wheel has it beside `broker`, whose check it loads by its path.
"""

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def run() -> None:
    """Run the command, or say in one sentence what hides it."""
    _own_packages().run()


def refuse_hidden() -> None:
    """See `broker.own_packages`."""
    _own_packages().refuse_hidden()


def _own_packages() -> ModuleType:
    file = Path(__file__).with_name("broker") / "own_packages.py"
    if not file.exists():
        # An editable install: this file was copied, and the packages are in the checkout.
        return import_module("broker.own_packages")
    found = spec_from_file_location("tidemark_own_packages", file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
