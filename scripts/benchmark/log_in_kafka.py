"""Measures Tidemark with its log in Kafka; prints tables, writes in-kafka.json.

Run by `scripts/bench.py --wal kafka`, which starts a Kafka of one node for it.
"""

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmark.baselines.kafka_server import kafka
from benchmark.bench import about_run
from benchmark.measures.in_kafka import InKafka
from benchmark.measures.master.together import Together
from benchmark.options import parsed
from benchmark.processes import Unavailable
from benchmark.results import report
from benchmark.results.figures import Series, as_json, written
from benchmark.results.in_kafka_goals import GOALS_IN_KAFKA, KINDS, QUESTIONS_IN_KAFKA
from benchmark.subject import Amount, Subject

FILE = "in-kafka.json"


def main() -> int:
    """Measure, print, write a JSON file."""
    options = parsed(sys.argv[1:], "")
    amount = Amount(options.rounds, options.messages, options.seconds, 0.0)
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=options.out) as name:
        try:
            with kafka(Path(name), options.downloads) as server:
                subjects = in_kafka(Path(name), server.address, amount)
                for number in range(1, amount.rounds + 1):
                    for subject in subjects:
                        subject.once()
                    print(f"round {number} of {amount.rounds}", file=sys.stderr, flush=True)
        except Unavailable as reason:
            sys.exit(str(reason))
    field_of = [it.series for it in subjects]
    made = as_json(field_of, about_run(amount, {}))
    (options.out / FILE).write_text(written(made))
    console = report.console()
    for table in report.tables(field_of, {}, QUESTIONS_IN_KAFKA, GOALS_IN_KAFKA):
        console.print(table)
        console.print()
    console.print(f"{FILE} is in {options.out.resolve()}")
    return 0


def in_kafka(folder: Path, address: str, amount: Amount) -> list[Subject]:
    """All subjects of the log in Kafka; a round of them is measured together."""
    together = Together(InKafka(folder, address, amount.messages).measure)
    return [
        Subject(Series(name, kind, "by the system"), partial(together.take, name))
        for name, kind in KINDS.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
