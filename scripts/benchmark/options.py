"""The command line of `scripts/bench.py`; nothing but the standard library.

So a wrong option is refused at once, before an environment is made for the run.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

MORE = ("kafka", "rabbitmq")
"""Baselines that are run only when they are asked for."""
WORK = Path(__file__).resolve().parents[2] / ".bench"
ROUNDS = 3
MESSAGES_MIN = 8_000
"""Fewer would not fill the batches that are kept in flight."""
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parsed(arguments: Sequence[str], about: str) -> argparse.Namespace:
    """The options, with absolute paths; ends the program with code 2 and the reason if one is bad.

    `about`: the text of `--help`.
    """
    parser = _parser(about)
    options = parser.parse_args(arguments)
    if len(options.compare) > 2:
        parser.error(f"--compare takes one or two files, not {len(options.compare)}")
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {options.rounds}")
    if options.messages < MESSAGES_MIN:
        parser.error(f"--messages must be at least {MESSAGES_MIN:,}, not {options.messages:,}")
    if not 0 < options.seconds <= 60:
        parser.error(f"--seconds must be above 0 and at most 60, not {options.seconds:g}")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out must name a folder; {options.out} is a file")
    choices = options.quick or options.more or options.only
    if options.wal and (
        choices or options.compare or options.compiled or options.reopen is not None
    ):
        parser.error(
            "--wal is a measurement of its own: it takes --rounds, --messages, --out and"
            " --downloads alone"
        )
    measures = choices or options.compiled
    if len(options.compare) == 2 and measures:
        parser.error("--compare OLD.json NEW.json measures nothing: leave the other options out")
    if options.reopen is not None and (choices or options.compare):
        parser.error(
            "--reopen is a measurement of its own: it takes --rounds, --compiled and --out alone"
        )
    return options


def size_of(text: str) -> int:
    """The number of bytes of `64MiB`, `1GiB`, or a plain number."""
    found = re.fullmatch(r"(\d+)\s*([KMG]iB|)", text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64MiB or 1GiB")
    return int(found[1]) * UNITS[found[2]]


def _words(text: str) -> list[str]:
    found = [it for it in text.lower().split("|") if it.strip()]
    if not found:
        raise argparse.ArgumentTypeError(
            f"--only needs at least one word, not {text!r}; such as append or 'idle|memory'"
        )
    return found


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _parser(about: str) -> argparse.ArgumentParser:
    first, _, rest = about.partition("\n")
    parser = argparse.ArgumentParser(
        prog="bench.py",
        description=first,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument(
        "--messages", type=int, default=60_000,
        help="messages of each subject and round; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=3.0,
        help="seconds at each fixed rate; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that everything runs"
    )
    parser.add_argument(
        "--only", type=_words, default=[], metavar="A|B",
        help="only subjects with one of these in name or kind, and what they are compared with",
    )  # fmt: skip
    parser.add_argument(
        "--with", dest="more", action="append", default=[], choices=MORE,
        help="measure this baseline, too. kafka: its jars (44 MB) are fetched from Maven Central;"
        " rabbitmq: Debian's rabbitmq-server must be installed",
    )  # fmt: skip
    parser.add_argument(
        "--compiled", action="store_true",
        help="measure the wheel whose scanners are compiled, in an environment of its own; needs a"
        " C compiler",
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=_absolute, nargs="+", default=[], metavar="JSON",
        help="OLD.json: tell what changed since that run; OLD.json NEW.json: compare two runs"
        " without measuring. Exit code 1 when something is worse by more than 5 %% beyond both"
        " spreads",
    )  # fmt: skip
    parser.add_argument(
        "--reopen", type=size_of, nargs="?", const="1GiB", metavar="SIZE",
        help="measure the time to the first append on a log of that size instead, such as 1GiB",
    )  # fmt: skip
    parser.add_argument(
        "--wal", choices=("kafka",), default="",
        help="measure Tidemark with its log in a Kafka, which is started for it, beside a bare"
        " producer and consumer instead; fetches Kafka's jars (44 MB), needs Java",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=_absolute, default=WORK, metavar="FOLDER",
        help="the folder for the results, made when missing; default: .bench of the clone",
    )  # fmt: skip
    parser.add_argument(
        "--downloads", type=_absolute, default=WORK / "downloads", metavar="FOLDER",
        help="the folder that keeps what --with fetches, for the next run",
    )  # fmt: skip
    return parser
