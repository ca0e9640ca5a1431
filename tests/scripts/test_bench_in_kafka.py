"""The measure of the log in Kafka: the bare clients do what they are compared for."""

from pathlib import Path

from benchmark.baselines.kafka_server import KafkaNode
from benchmark.log_in_kafka import in_kafka
from benchmark.measures.in_kafka import BareTopic
from benchmark.results.figures import RATE, find
from benchmark.results.in_kafka_goals import GOALS_IN_KAFKA, QUESTIONS_IN_KAFKA
from benchmark.subject import Amount

from tests.kafka_node import kafka_node

__all__ = ["kafka_node"]


def test_the_bare_clients_read_back_what_they_sent(kafka_node: KafkaNode) -> None:
    topic = BareTopic(kafka_node.address, "bench-in-kafka")
    assert topic.append(5_000) > 0
    assert len(topic.one_by_one(3)) == 3
    found = topic.read(6_000)
    assert found["messages"] == 6_000
    assert found[RATE] > 0


def test_each_goal_and_question_compares_subjects_that_are_measured(tmp_path: Path) -> None:
    listed = [it.series for it in in_kafka(tmp_path, "127.0.0.1:1", Amount(1, 1_000, 1.0, 1.0))]
    for goal in GOALS_IN_KAFKA:
        assert find(listed, goal.subject) is not None
        assert not goal.reference or find(listed, goal.reference) is not None
    for question in QUESTIONS_IN_KAFKA:
        asked = [it for it in listed if question.holds(it)]
        assert find(asked, question.reference) is not None
        assert len(asked) > 1
