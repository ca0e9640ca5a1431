"""Component states, from what the runtime says of the actors."""

import pytest

from broker.core.master.component_health import (
    PARTS,
    ActorState,
    Component,
    ComponentCode,
    components,
    overall,
)

RUNNING = {path: ActorState("running") for path in PARTS.values()}
IDS = PARTS["id_allocator"]


def test_the_codes_are_those_of_milvus() -> None:
    assert [(it.name, it.value) for it in ComponentCode] == [
        ("INITIALIZING", 0), ("HEALTHY", 1), ("ABNORMAL", 2),
    ]  # fmt: skip


def test_all_that_runs_is_healthy() -> None:
    parts = components(RUNNING)
    assert [it.name for it in parts] == list(PARTS)
    assert {it.code for it in parts} == {ComponentCode.HEALTHY}
    assert overall(parts, starting=False, reasons=()) == Component("master", ComponentCode.HEALTHY)


@pytest.mark.parametrize(
    ("actor", "code", "cause"),
    [
        (ActorState("starting"), ComponentCode.INITIALIZING, "it is starting"),
        (ActorState("starting", "died", 2), ComponentCode.ABNORMAL, "it is starting: died"),
        (ActorState("waiting", "disk full"), ComponentCode.ABNORMAL, "it is waiting: disk full"),
        (ActorState("stopped"), ComponentCode.ABNORMAL, "it is stopped"),
        (ActorState("running", "no owner"), ComponentCode.ABNORMAL, "no owner"),
    ],
)
def test_one_part_decides_the_state_of_all(
    actor: ActorState, code: ComponentCode, cause: str
) -> None:
    parts = components(RUNNING | {IDS: actor})
    assert Component("id_allocator", code, cause) in parts
    found = overall(parts, starting=False, reasons=())
    assert found.code is code
    assert "id_allocator" in found.cause


def test_a_process_that_starts_is_initializing_and_one_that_does_not_serve_abnormal() -> None:
    parts = components(RUNNING)
    assert overall(parts, starting=True, reasons=()) == Component(
        "master", ComponentCode.INITIALIZING, "the process is starting"
    )
    broken = components(RUNNING | {IDS: ActorState("waiting", "disk full")})
    starting = overall(broken, starting=True, reasons=())
    assert starting.code is ComponentCode.INITIALIZING
    assert "disk full" in starting.cause
    found = overall(parts, starting=False, reasons=["a newer coordinator leads"])
    assert found == Component("master", ComponentCode.ABNORMAL, "a newer coordinator leads")


def test_a_part_that_is_not_served_is_left_out() -> None:
    assert components({IDS: ActorState("running")}) == (
        Component("id_allocator", ComponentCode.HEALTHY),
    )
