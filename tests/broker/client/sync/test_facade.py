"""The blocking client has every public name of the async one, with the same signature."""

import ast
import inspect
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

import broker.client.sync.facade as facade
from broker.client import Client, Deadlines, Gathering, SendLimits, connect
from broker.client.net.network import Network
from broker.client.sync.blocking import INTERNAL, Blocking, BlockingTicket
from broker.client.sync.loop_thread import LoopThread

STUB = Path(facade.__file__).with_suffix(".pyi")


class SameThread(LoopThread):
    """Only a place for names: nothing is called."""

    def __init__(self) -> None:
        pass

    def release(self, inner: object) -> None:
        pass


def stub_classes() -> dict[str, ast.ClassDef]:
    tree = ast.parse(STUB.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def public(thing: object) -> set[str]:
    names = {it for it in dir(thing) if not it.startswith("_")}
    return {"close" if it == "aclose" else it for it in names}


def instance_names(kind: type) -> set[str]:
    """Public attributes that `__init__` sets."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind)))  # type: ignore[arg-type]
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    (found,) = [n for n in classes if n.name == kind.__name__]
    stored = [
        n for n in ast.walk(found) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    ]
    names = {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}
    return {n for n in names if not n.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, it.__name__) for kind, it in Blocking.WRAPPERS.items() if it.__name__ != "Ticket"],
)
def test_the_types_have_every_public_name_of_the_async_class(kind: type, name: str) -> None:
    body = stub_classes()[name].body
    stubbed = {n.name for n in body if isinstance(n, ast.FunctionDef)} | {
        n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    wanted = (public(kind) | instance_names(kind)) - INTERNAL.get(name, set())
    assert {it for it in stubbed if not it.startswith("_")} == wanted


def test_a_ticket_is_a_class_of_its_own_in_the_types() -> None:
    names = {n.name for n in stub_classes()["Ticket"].body if isinstance(n, ast.FunctionDef)}
    assert names == {it for it in vars(BlockingTicket) if not it.startswith("_")}


async def test_each_method_has_the_signature_of_the_async_one() -> None:
    async with AsyncPair() as (client, blocking):
        assert public(blocking) == public(client)
        for name in public(client):
            async_one = getattr(client, "aclose" if name == "close" else name)
            own = getattr(blocking, name)
            if inspect.isroutine(async_one):
                assert inspect.signature(own) == inspect.signature(async_one), name
                assert "await " not in (own.__doc__ or ""), name
            else:
                assert type(own) is Blocking.WRAPPERS[type(async_one)], name
                assert public(own) == public(async_one), name


def test_connect_takes_what_the_async_one_takes() -> None:
    tree = ast.parse(STUB.read_text())
    (found,) = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    asked = inspect.signature(connect).parameters
    assert [it.arg for it in [*found.args.args, *found.args.kwonlyargs]] == list(asked)


class AsyncPair:
    """An async client that is connected to nothing, and a wrapper of it."""

    async def __aenter__(self) -> tuple[Client, Any]:
        network = Network(
            "127.0.0.1:1", cluster="by-dev", deadlines=Deadlines(), spread=random.Random(1)
        )
        tasks = anyio.create_task_group()
        client = Client(network, tasks, Deadlines(), (SendLimits(), Gathering()), resend=True)
        return client, facade.Client(client, SameThread())  # type: ignore[call-arg]

    async def __aexit__(self, *_: object) -> None:
        pass
