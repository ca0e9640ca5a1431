"""What is asked of the log in Kafka, and the goals for it."""

from benchmark.measures import in_kafka as names
from benchmark.results.figures import P50, RATE
from benchmark.results.goals import Goal
from benchmark.results.questions import Question

ONE_BY_ONE, APPENDS, READS, NODES = (
    f"log in Kafka, {it}" for it in ("one", "append", "read", "nodes")
)
KINDS = {
    names.BARE_APPEND: APPENDS, names.OUR_APPEND: APPENDS,
    names.BARE_READ: READS, names.OUR_READ: READS,
    names.BARE_ONE: ONE_BY_ONE, names.OUR_ONE: ONE_BY_ONE, names.OUR_DELAY: ONE_BY_ONE,
    names.ONE_NODE: NODES, names.FOUR_NODES: NODES,
}  # fmt: skip
"""The kind of each subject."""
QUESTIONS_IN_KAFKA = (
    Question("The log in Kafka: appends", APPENDS, RATE, "messages/s", names.BARE_APPEND),
    Question("The log in Kafka: reads", READS, RATE, "messages/s", names.BARE_READ),
    Question("The log in Kafka: one awaited append", ONE_BY_ONE, P50, "ms", names.BARE_ONE),
    Question("The log in Kafka: nodes", NODES, RATE, "messages/s", names.ONE_NODE),
)
GOALS_IN_KAFKA = (
    Goal(
        "append_batch ÷ bare producer", 0.7, names.OUR_APPEND, RATE, names.BARE_APPEND,
        at_least=True,
    ),
    Goal(
        "read_batches, catching up ÷ bare consumer", 0.5, names.OUR_READ, RATE, names.BARE_READ,
        at_least=True,
    ),
    Goal("one append, p50 beyond the bare one", 1, names.OUR_DELAY, P50, unit="ms"),
)  # fmt: skip
