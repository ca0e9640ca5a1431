"""The habits a linter does not know: sizes, names, docstrings that lead on, mirrored tests."""

import ast
import re
from collections import Counter
from pathlib import Path

from tests.architecture.tree import ROOT, nodes, sources, tracked, tree

PACKAGES = {"actors", "broker", "schemas", "scripts", "tests"}
TOP_LEVEL = PACKAGES | {"pyproject.toml", "tox.ini", "README.md"}
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
MODULES_MAX = 20
"""On one level of a room: what a person can hold."""
BANNED_STEMS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "shared"}
NEXT_PATH = re.compile(rf"\b(?:{'|'.join(sorted(PACKAGES))})/[\w/.]*\w")
BANNED_IN_CLASS_NAMES = re.compile(r"Manager|Handler|Helper|Utils?(?![a-z])|.Actor$")
# About an actor, not one; and two that Milvus's protocol named (Streaming...ManagerService).
NAMED_WELL = {"NoSuchActor", "NodeManagerService", "HandlerService"}
# Packages in which each file with a decision in it has its own test file.
MIRRORED = ("actors/", "broker/core/")


def test_the_top_level_is_exactly_the_agreed_names() -> None:
    top = {name.partition("/")[0] for name in tracked()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible == TOP_LEVEL, f"extra or missing: {sorted(visible ^ TOP_LEVEL)}"


def test_no_file_is_longer_than_one_idea() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in sources()}
    long = {name: length for name, length in lengths.items() if length > FILE_LINES_MAX}
    assert not long, f"split these by idea (at most {FILE_LINES_MAX} lines): {long}"


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for name, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            long.append(f"{name}:{node.lineno} {node.name} ({length} lines)")
    assert not long, f"at most {FUNCTION_LINES_MAX} lines: {long}"


def test_a_room_shows_its_subject_on_each_level() -> None:
    rooms = ("actors/", "broker/", "schemas/")
    inside = [n for n in sources() if n.startswith(rooms) and not n.endswith("__init__.py")]
    counts = Counter(str(Path(name).parent) for name in inside)
    full = {room: count for room, count in counts.items() if count > MODULES_MAX}
    assert not full, f"move the walls (at most {MODULES_MAX} modules on a level): {full}"


def test_a_file_is_named_for_what_it_holds() -> None:
    drawers = [n for n in sources() if BANNED_STEMS & {*Path(n).with_suffix("").parts}]
    assert not drawers, f"name these for their one idea: {drawers}"


def test_a_class_is_named_for_what_it_owns() -> None:
    vague = []
    for name, node in nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        if BANNED_IN_CLASS_NAMES.search(node.name) and node.name not in NAMED_WELL:
            vague.append(f"{name}:{node.lineno} {node.name}")
    assert not vague, f"no Actor, Manager, Handler, Helper, Util in a name: {vague}"


def test_every_file_says_what_it_owns() -> None:
    silent = [name for name in sources() if not ast.get_docstring(tree(name))]
    assert not silent, f"a module docstring is missing: {silent}"


def test_what_a_docstring_names_as_next_exists() -> None:
    lost = []
    for name in sources():
        text = " ".join((ast.get_docstring(tree(name)) or "").split())
        for sentence in re.findall(r"\bNext: (.*?)(?:\. |\.?$)", text):
            paths = NEXT_PATH.findall(sentence)
            lost += [f"{name} -> {path}" for path in paths if not (ROOT / path).exists()]
            if not paths:
                lost.append(f"{name} -> {sentence!r} is not a path")
    assert not lost, f"these lead nowhere: {lost}"


def test_each_decision_has_a_test_file_of_its_own() -> None:
    bare = []
    for name in (n for n in sources() if n.startswith(MIRRORED) and has_code(n)):
        path = Path(name)
        mirrors = (ROOT / "tests" / path.parent).glob(f"test_{path.stem.lstrip('_')}*.py")
        if not any(mirrors):
            bare.append(f"{name} -> tests/{path.parent}/test_{path.stem}.py")
    assert not bare, f"tests mirror sources; missing: {bare}"


def test_no_test_folder_is_a_package() -> None:
    packages = [n for n in sources() if n.startswith("tests/") and n.endswith("__init__.py")]
    assert not packages, f"tests/broker as a package would stand in for broker: {packages}"


def has_code(name: str) -> bool:
    """Whether it holds a function that does something; names, values and Protocols do nothing."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for node in ast.walk(tree(name)) if isinstance(node, functions))
    return any(not isinstance(part, ast.Expr | ast.Pass) for node in found for part in node.body)
