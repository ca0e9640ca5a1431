"""The table of `tidemark health`."""

from dataclasses import replace

from broker.cli.show.health_report import health_facts
from tests.broker.cli.top.broker_states import HEALTH


def test_a_coordinator_shows_who_leads_and_who_stands_by_also_when_nobody_leads() -> None:
    coordinator = replace(HEALTH, node_id=0, leader="a:1", standbys=("b:1", "c:1"))
    shown = health_facts(coordinator)
    assert (shown["leader"], shown["standbys"]) == ("a:1", "b:1, c:1")
    shown = health_facts(replace(coordinator, leader=""))
    assert (shown["leader"], shown["standbys"]) == ("none at the moment", "b:1, c:1")


def test_a_node_shows_no_coordinators() -> None:
    assert not {"leader", "standbys"} & set(health_facts(replace(HEALTH, node_id=1)))
