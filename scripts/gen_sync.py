"""Generates broker/client/sync/facade.pyi, the types of the blocking client, from the async client.

    python scripts/gen_sync.py            write it
    python scripts/gen_sync.py --check    exit with 1 when it is stale

At run time one wrapper serves every class of the async client; this file tells editors and mypy
what that comes to: the same names and arguments, without `async`.
"""

import argparse
import ast
import builtins
import importlib
import inspect
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from broker.client import Deadlines, Gathering, SendLimits  # noqa: E402
from broker.client.client import Client  # noqa: E402
from broker.client.connect import connect as async_connect  # noqa: E402
from broker.client.net.network import Network  # noqa: E402
from broker.client.sync import facade  # noqa: E402, F401 - it fills WRAPPERS
from broker.client.sync.blocking import (  # noqa: E402
    INTERNAL,
    Blocking,
    BlockingClient,
    BlockingTicket,
    without_await,
)

TARGET = ROOT / "broker" / "client" / "sync" / "facade.pyi"
HEAD = '''"""The blocking client, as types: made by `python scripts/gen_sync.py`, do not edit."""'''
ITERATORS = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}
KINDS: dict[str, type] = {
    wrapper.__name__: kind
    for kind, wrapper in Blocking.WRAPPERS.items()
    if kind.__module__[:1] == "b"
}
"""The async class of each wrapper, by name."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Stub:
    """The text of the file, and the imports that it needs."""

    def __init__(self) -> None:
        self.imports: set[str] = {"from typing import Self"}
        self.body: list[str] = []

    def text(self) -> str:
        """The whole file, formatted as ruff does."""
        raw = "\n".join([HEAD, "", *sorted(self.imports), "", *self.body]) + "\n"
        for command in (["check", "--fix", "--select", "I", "-q"], ["format", "-q"]):
            run = ["ruff", *command, "--stdin-filename", str(TARGET), "-"]
            raw = subprocess.run(
                run, input=raw, capture_output=True, text=True, check=True, cwd=ROOT
            ).stdout
        return raw

    def klass(self, name: str, kind: type) -> None:
        """One class with everything that is public in it."""
        self.body.append(f"class {name}:")
        self._doc(inspect.getdoc(kind) or "", "    ")
        for attribute, annotation in _attributes(kind):
            self.body.append(f"    {attribute}: {self._type(*annotation)}")
        for method, value in sorted(
            _methods(kind).items(), key=lambda it: (it[0] == "list", it[0])
        ):
            if method not in INTERNAL.get(name, set()):
                self._method(name, method, value)
        self._protocols(name, kind)
        self.body.append("")

    def function(self, function: FunctionType, returns: str) -> None:
        """A function of the module."""
        node, module = _definition(function)
        self.body.append(
            f"def {node.name}({self._arguments(node, module, kind=None)}) -> {returns}:"
        )
        self._doc(ast.get_docstring(node) or "", "    ")
        self.body.append("    ...")

    def _method(self, owner: str, name: str, value: Any) -> None:
        function: Any = value.fget if isinstance(value, property) else value
        node, module = _definition(inspect.unwrap(function))
        kind = KINDS.get(owner)
        if isinstance(value, property):
            self.body.append("    @property")
        returns = self._type(node.returns, module, kind)
        shown = "close" if name == "aclose" else name
        arguments = self._arguments(node, module, kind, skip_self=True)
        self.body.append(
            f"    def {shown}({', '.join(filter(None, ['self', arguments]))}) -> {returns}:"
        )
        self._doc(ast.get_docstring(node) or "", "        ")
        self.body.append("        ...")

    def _protocols(self, name: str, kind: type) -> None:
        if hasattr(kind, "__aenter__") or name == "Client":
            self.body.append("    def __enter__(self) -> Self: ...")
            self.body.append("    def __exit__(self, *raised: object) -> None: ...")
        if hasattr(kind, "__len__"):
            self.body.append("    def __len__(self) -> int: ...")
        if hasattr(kind, "__anext__"):
            node, module = _definition(kind.__anext__)
            self.body.append("    def __iter__(self) -> Self: ...")
            self.body.append(
                f"    def __next__(self) -> {self._type(node.returns, module, kind)}: ..."
            )

    def _doc(self, text: str, indent: str) -> None:
        if text:
            lines = without_await(text).splitlines()
            escaped = [line.replace("\\", "\\\\") for line in lines]
            self.body.append(f'{indent}"""' + f"\n{indent}".join(escaped) + '"""')

    def _arguments(
        self, node: Function, module: ModuleType, kind: type | None, *, skip_self: bool = False
    ) -> str:
        found = ast.parse(ast.unparse(node.args).join(("def f(", "): ..."))).body[0]
        assert isinstance(found, ast.FunctionDef)
        args = found.args
        if skip_self:
            del args.args[0]
        for each in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if each is not None and each.annotation is not None:
                each.annotation = _expression(self._type(each.annotation, module, kind))
        args.defaults = [_default(it) for it in args.defaults]
        args.kw_defaults = [None if it is None else _default(it) for it in args.kw_defaults]
        return ast.unparse(args)

    def type_of(self, kind: type) -> ast.expr:
        """A class by its name, which is imported if need be."""
        return _expression(self._type(ast.Name(kind.__name__), sys.modules[kind.__module__], None))

    def _type(self, node: ast.expr | None, module: ModuleType, kind: type | None) -> str:
        if node is None:
            return "Any"
        return ast.unparse(
            Types(self, module, kind).visit(ast.parse(ast.unparse(node)).body[0]).value
        )


class Types(ast.NodeTransformer):
    """Rewrites an annotation: live classes become their wrappers, other names are imported."""

    def __init__(self, stub: Stub, module: ModuleType, kind: type | None) -> None:
        self._stub, self._module, self._kind = stub, module, kind

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A type in quotes."""
        return self.rewritten(_expression(node.value)) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """What stands in a Literal is no type."""
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            self._stub.imports.add("from typing import Literal")
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A class, an alias, a type variable or a module."""
        name = node.id
        if name in KINDS or name == "Ticket":
            return node
        if name in ITERATORS:
            self._stub.imports.add(f"from collections.abc import {ITERATORS[name]}")
            return ast.Name(ITERATORS[name])
        bound = _bound(self._kind, name)
        if bound is not None:
            return self._stub.type_of(bound)
        if hasattr(builtins, name):
            return node
        module, alias = _origin(self._module, name)
        if alias is not None and _mentions_live(alias, module):
            return Types(self._stub, module, self._kind).rewritten(alias)
        known = "import pyarrow as pa" if name == "pa" else f"from {module.__name__} import {name}"
        self._stub.imports.add(known)
        return node

    def rewritten(self, node: ast.expr) -> ast.expr:
        """The rewritten form of a copy."""
        found = self.visit(_expression(ast.unparse(node)))
        assert isinstance(found, ast.expr)
        return found


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _default(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) else ast.Constant(...)


def _attributes(kind: type) -> Iterator[tuple[str, tuple[ast.expr | None, ModuleType, type]]]:
    """Public attributes of instances, with their annotations."""
    module = sys.modules[kind.__module__]
    if kind is Client:
        for name, value in vars(_client()).items():
            if type(value).__name__ in KINDS and not name.startswith("_"):
                yield name, (ast.Name(type(value).__name__), module, kind)
        return
    node, _ = _definition(vars(kind)["__init__"]) if "__init__" in vars(kind) else (None, None)
    if node is None:
        return
    types = {it.arg: it.annotation for it in [*node.args.args, *node.args.kwonlyargs]}
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else None
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            assert isinstance(line, ast.Assign)
            value = line.value
            if isinstance(value, ast.Name):
                yield target.attr, (types[value.id], module, kind)
            elif isinstance(value, ast.Constant):
                yield target.attr, (ast.Name(type(value.value).__name__), module, kind)


def _methods(kind: type) -> dict[str, Any]:
    """Public methods and properties, those of a client's parts that are its own included."""
    found = {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }
    if kind is Client:
        own = {name: it for name, it in vars(_client()).items() if not name.startswith("_")}
        found |= {name: it.__func__ for name, it in own.items() if inspect.ismethod(it)}
        del found["aclose"]
        found |= {name: vars(BlockingClient)[name] for name in ("abort", "close")}
    return {name: it for name, it in found.items() if isinstance(it, property | FunctionType)}


@cache
def _client() -> Client:
    """A client that is connected to nothing."""
    return anyio.run(_unconnected)


async def _unconnected() -> Client:
    network = Network(
        "127.0.0.1:1", cluster="by-dev", deadlines=Deadlines(), spread=random.Random()
    )
    tasks = anyio.create_task_group()
    return Client(network, tasks, Deadlines(), (SendLimits(), Gathering()), resend=True)


def _definition(function: Any) -> tuple[Function, ModuleType]:
    module = sys.modules[function.__module__]
    found: ast.AST = _tree(module)
    for part in function.__qualname__.split("."):
        found = next(
            node
            for node in ast.iter_child_nodes(found)
            if isinstance(node, ast.ClassDef | Function) and node.name == part
        )
    assert isinstance(found, Function)
    return found, module


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _bound(kind: type | None, name: str) -> type | None:
    """What a type variable stands for in this class."""
    for base in getattr(kind, "__orig_bases__", ()):
        parameters = getattr(base.__origin__, "__parameters__", ())
        for parameter, value in zip(parameters, base.__args__, strict=True):
            if parameter.__name__ == name and isinstance(value, type):
                return value
    return None


def _origin(module: ModuleType, name: str) -> tuple[ModuleType, ast.expr | None]:
    """The module that defines a name; and, if it is an alias of a type, what it stands for."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module:
                    imported = importlib.import_module(node.module)
                    if node.module.startswith("broker"):
                        return _origin(imported, alias.name)
                    return imported, None
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == name:
            assert isinstance(node, ast.Assign)
            return module, node.value
    return module, None


def _mentions_live(alias: ast.expr, module: ModuleType) -> bool:
    names = {node.id for node in ast.walk(alias) if isinstance(node, ast.Name)}
    if names & KINDS.keys():
        return True
    inner = [_origin(module, name) for name in names]
    return any(node is not None and _mentions_live(node, where) for where, node in inner)


def generate() -> str:
    """The whole stub file."""
    stub = Stub()
    for name, kind in sorted(KINDS.items()):
        stub.klass(name, kind)
    stub.klass("Ticket", BlockingTicket)
    stub.function(inspect.unwrap(async_connect), "Client")
    return stub.text()


def main() -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when it is stale")
    check = parser.parse_args().check
    fresh = generate()
    stale = not TARGET.exists() or TARGET.read_text(encoding="utf-8") != fresh
    if stale and check:
        print(
            f"{TARGET.relative_to(ROOT)} is stale: run `python scripts/gen_sync.py` and commit",
            file=sys.stderr,
        )
        return 1
    if stale:
        TARGET.write_text(fresh, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} is {'written' if stale else 'up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
