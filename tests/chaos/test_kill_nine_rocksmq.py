"""kill -9 of a process with an embedded queue, `--rocksmq-kills N` times; see `rocksmq_worker`.

Nothing acknowledged is lost, order and ids stay, a batch is whole or absent, and no group skips a
message: its stored position is never ahead of what it was answered.
"""

import logging
import random
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.rocksmq import ConsumerMessage, RocksMQ
from tests.chaos.rocksmq_worker import CHANNELS, KEEPER, READER

OPENED_S_MAX = 120.0
LINES_A_LIFE_MAX = 400

log = logging.getLogger("tests.chaos")


@dataclass
class Answers:
    """What the killed processes told, of one channel."""

    produced: dict[str, list[int]] = field(default_factory=dict)
    """Ids by batch, `life/producer/number`."""
    consumed: list[tuple[int, list[int]]] = field(default_factory=list)
    """Life and ids of each consume, in order."""
    committed: list[tuple[int, int]] = field(default_factory=list)
    """How many consumes were told before a commit, and its position."""


def run_and_kill(folder: Path, life: int, chosen: random.Random) -> list[str]:
    """The lines of one life. Some die while they open the folder, most amid work."""
    script = Path(__file__).with_name("rocksmq_worker.py")
    worker = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(life)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    early = chosen.random() < 0.2
    alarm = threading.Timer(chosen.uniform(0.0, 0.6) if early else OPENED_S_MAX, worker.kill)
    alarm.start()
    lines: list[str] = []
    stop_at = chosen.randrange(1, LINES_A_LIFE_MAX)
    for line in worker.stdout:
        assert line.endswith("\n")
        lines.append(line)
        if len(lines) == stop_at:
            worker.kill()  # and read what it still told
    alarm.cancel()
    assert worker.wait() == -9, "it has ended by itself"
    worker.stdout.close()
    assert early or lines, "it has opened nothing in time"
    return lines


def note(answers: dict[str, Answers], life: int, line: str) -> None:
    kind, *words = line.split()
    if kind == "P":
        answers[words[0]].produced[words[1]] = [int(it) for it in words[2:]]
    elif kind == "C":
        answers[words[0]].consumed.append((life, [int(it) for it in words[1:]]))
    elif kind == "K":
        of = answers[words[0]]
        of.committed.append((len(of.consumed), int(words[1])))


async def all_of(mq: RocksMQ, group: str, channel: str) -> list[ConsumerMessage]:
    found: list[ConsumerMessage] = []
    while batch := await mq.consume(group, channel, 1000):
        found += batch
    return found


def check_produced(answers: Answers, found: list[ConsumerMessage]) -> None:
    """Each acknowledged batch is there with its ids; any other is whole."""
    ids = [it.msg_id for it in found]
    assert ids == sorted(set(ids))
    batches: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for message in found:
        text = message.payload.split(b" ")[0].decode()
        batch, _, place = text.rpartition("/")
        batches[batch].append((int(place), message.msg_id))
    for places in batches.values():
        first = places[0][1]
        assert places == [(place, first + place) for place in range(len(places))]
    for name, wanted in answers.produced.items():
        assert [msg_id for _, msg_id in batches[name]] == wanted
    newest: dict[str, int] = {}
    for name in batches:  # in the order of ids
        producer, _, count = name.rpartition("/")
        assert int(count) > newest.get(producer, -1)
        newest[producer] = int(count)


def check_consumed(answers: Answers, order: list[int]) -> int:
    """No consume skips a message, none comes before the last commit; how many came again.

    `order`: all ids that were ever seen, in order.
    """
    at = {msg_id: place for place, msg_id in enumerate(order)}
    reached, again = -1, 0
    floors = dict(answers.committed)
    floor, last_life = -1, -1
    for number, (life, ids) in enumerate(answers.consumed):
        floor = max(floor, floors.get(number, -1))
        places = [at[it] for it in ids]
        assert places == list(range(places[0], places[0] + len(places)))
        assert places[0] <= reached + 1, "a message was skipped"
        assert ids[0] >= floor, "what was committed comes again"
        if places[0] <= reached:
            assert life != last_life, "only after a death a message comes again"
            again += reached + 1 - places[0]
        reached, last_life = places[-1], life
    return again


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_and_no_group_skips_a_message(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = int(request.config.getoption("--rocksmq-kills"))
    chosen = random.Random(kills)
    folder = tmp_path / "queues"
    answers = {name: Answers() for name in CHANNELS}
    opened = 0
    for life in range(kills):
        for line in run_and_kill(folder, life, chosen):
            opened += line.startswith("O")
            note(answers, life, line)
    async with await RocksMQ.open(folder) as mq:
        ends = [mq.describe_channel(name).end_id for name in CHANNELS]
        kept = await all_of(mq, KEEPER, "kept")
        swept = await all_of(mq, READER, "swept")
        rest = await all_of(mq, READER, "kept")
        first = (await mq.produce("kept", [b"on"]))[0]
    assert first > max(ends)
    check_produced(answers["kept"], kept)
    order = [it.msg_id for it in kept]
    answers["kept"].consumed.append((kills, [it.msg_id for it in rest] or order[-1:]))
    again = check_consumed(answers["kept"], order)
    again += check_swept(answers["swept"], [it.msg_id for it in swept], kills)
    produced = sum(len(it.produced) for it in answers.values())
    consumed = sum(len(it.consumed) for it in answers.values())
    assert produced > kills
    told = "%d kills, %d of processes that had opened: %d batches, %d consumes, %d messages again"
    log.info(told, kills, opened, produced, consumed, again)


def check_swept(answers: Answers, left: list[int], kills: int) -> int:
    """Of a channel that is swept, what was produced was consumed, or is still there."""
    ids = {it for _, consumed in answers.consumed for it in consumed} | set(left)
    for wanted in answers.produced.values():
        assert ids.issuperset(wanted)
    if left:
        answers.consumed.append((kills, left))
    return check_consumed(answers, sorted(ids))
