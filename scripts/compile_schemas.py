"""Build hook: the wheel with the scanners of `schemas` compiled by mypyc.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip install .     needs a C compiler; takes about a minute

Without the variable the wheel is pure Python. Sources are compiled in a temporary folder and never
in the checkout: an import would prefer a binary there to the source that somebody edits.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="schemas",
    packages=[],
    py_modules=[],
    ext_modules=mypycify(["--strict", "--config-file=", *{modules!r}], opt_level="3"),
)
"""


class CompiledSchemas(BuildHookInterface[Any]):
    """Adds one extension module to the wheel for each of `modules`, beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an error of the compiler fails the build."""
        if version == "editable":
            raise ValueError(
                "compiled schemas cannot be installed as editable: edits would have no effect;"
                " unset HATCH_BUILD_HOOK_ENABLE_CUSTOM"
            )
        self._folder = Path(mkdtemp(prefix="tidemark-mypyc-"))
        for binary in _compile(Path(self.root), self._folder, self.config["modules"]):
            build_data["force_include"][str(binary)] = str(binary.relative_to(self._folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _compile(root: Path, folder: Path, modules: list[str]) -> list[Path]:
    shutil.copytree(root / "schemas", folder / "schemas", ignore=shutil.ignore_patterns("*.so"))
    setup = folder / "setup.py"
    setup.write_text(SETUP.format(modules=modules), encoding="utf-8")
    command = [sys.executable, setup.name, "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, check=True)
    return [path for path in folder.rglob("*.so") if "build" not in path.relative_to(folder).parts]
