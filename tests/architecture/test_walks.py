"""The four walks through the code, as `broker/README.md` lists them, hop by hop.

Each file of a walk names the next one in its module docstring, and imports it. A hop that is no
import is declared in the list: `(wire)` crosses a process, `(mailbox)` is a message to an actor,
`(port)` goes through a Protocol. After `(reply)` the next file is the caller and imports this one.
"""

import ast
import re
from itertools import pairwise

import pytest

from tests.architecture.tree import ROOT, sources, tree

PAGE = ROOT / "broker" / "README.md"
WALK = re.compile(r"^### (Append|Read|Tick|Micro-batch)\b.*?\n(.*?)(?=^##|\Z)", re.M | re.S)
HOP = re.compile(r"^\d+\. `([\w/]+\.py)`(?: \((wire|mailbox|port|reply)\))? ", re.M)
NEXT = re.compile(r"^Next: ([\w/]+\.py)$", re.M)
NAMES = {"Append", "Read", "Tick", "Micro-batch"}


def walks() -> dict[str, list[tuple[str, str]]]:
    """Each walk by name: its files, each with how it reaches the next one ("" for an import)."""
    return {name: HOP.findall(text) for name, text in WALK.findall(PAGE.read_text())}


def nexts(name: str) -> list[str]:
    return NEXT.findall(ast.get_docstring(tree(name)) or "")


def imported(name: str) -> set[str]:
    """The files whose modules, or names out of them, are imported; packages' own names followed."""
    found: set[str] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= _files(node.module)
            for alias in node.names:
                found |= _files(f"{node.module}.{alias.name}")
    for package in [it for it in found if it.endswith("__init__.py") and it != name]:
        found |= imported(package)
    return found


def _files(module: str) -> set[str]:
    path = module.replace(".", "/")
    return {it for it in (f"{path}.py", f"{path}/__init__.py") if (ROOT / it).exists()}


def test_all_four_walks_are_listed() -> None:
    assert walks().keys() == NAMES


@pytest.mark.parametrize("walk", sorted(NAMES))
def test_each_file_of_a_walk_names_the_next_one_and_knows_it(walk: str) -> None:
    hops = walks()[walk]
    wrong = []
    for (name, how), (following, _) in pairwise(hops):
        if following not in nexts(name):
            wrong.append(f"{name} does not say `Next: {following}`")
        if not how and following not in imported(name):
            wrong.append(f"{name} does not import {following}; is it a wire, mailbox or port hop?")
        if how == "reply" and name not in imported(following):
            wrong.append(f"{following} does not import {name}, so it is not its caller")
    assert len(hops) > 2
    assert not wrong, wrong


def test_only_the_files_of_a_walk_name_a_next_one() -> None:
    on_a_walk = {
        (name, following)
        for hops in walks().values()
        for (name, _), (following, _) in pairwise(hops)
    }
    strays = [
        f"{name} -> {following}"
        for name in sources()
        for following in nexts(name)
        if (name, following) not in on_a_walk
    ]
    assert not strays, f"no hop of a walk: {strays}"
