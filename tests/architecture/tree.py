"""The files of this repository, as the tests of its habits see them."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "schemas/generated/"


@cache
def tracked() -> tuple[str, ...]:
    """Every file git knows, those that are new and not ignored included."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"]
    listing = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
    ).stdout
    return tuple(name for name in listing.splitlines() if (ROOT / name).exists())


def sources() -> list[str]:
    """Our Python files, without the generated ones."""
    return [f for f in tracked() if f.endswith(".py") and not f.startswith(GENERATED)]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for name in sources():
        for node in ast.walk(tree(name)):
            if isinstance(node, kinds):
                yield name, node
