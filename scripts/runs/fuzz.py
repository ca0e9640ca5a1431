"""Fuzzes the targets of tests/fuzz, one after the other, each in a process of its own.

With atheris coverage leads the choice of inputs; without it they are changed ones of the corpus, by
a seed. An input that raises, takes more than a second of processor time, or makes the process grow
by more than 256 MiB ends its target and is saved in the folder --out. Prints inputs a second, the
slowest input and the peak of memory of each target.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SLOW_S = 1.0
"""Of processor time: what else the machine does must not look like a hang."""
HANG_S = 120
"""By the clock, for an input that waits and does not compute."""
GROWTH_BYTES_MAX = 256 << 20
"""By one input: the largest frame a server takes has 16 MiB, and lists of small numbers take ten
times what they take on the wire."""
DEFECT = 77


@dataclass(slots=True)
class Figures:
    """What one target did."""

    target: str
    led_by: str
    inputs: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    peak_mb: float = 0.0
    defect: str = ""


def main() -> int:
    """Run the targets one after the other; 0 when none has a defect."""
    options = _options()
    if options.child:
        return _child(options)
    names = _targets().names()
    chosen = options.targets.split(",") if options.targets else names
    if unknown := sorted(set(chosen) - set(names)):
        print(f"no targets: {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    if options.input is not None:
        return _once(chosen, options.input)
    count = options.inputs if options.total is None else -(-options.total // len(chosen))
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"{'target':18} {'led by':9} {'inputs':>10} {'a second':>9} {'slowest':>9} {'peak':>8}")
    found = [_run(name, count, options) for name in chosen]
    inputs, seconds = sum(it.inputs for it in found), sum(it.seconds for it in found)
    defects = [it for it in found if it.defect]
    print(
        f"{inputs:,} inputs in {seconds:,.0f} s, {len(defects)} defects;"
        f" slowest {max(it.slowest_ms for it in found):,.0f} ms of processor time,"
        f" most memory {max(it.peak_mb for it in found):,.0f} MB"
    )
    return 1 if defects else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="for each target")
    parser.add_argument("--total", type=int, help="over all targets, instead of --inputs")
    parser.add_argument("--targets", default="", help="names with commas between; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(".fuzz/run"), help="for corpus and finds")
    parser.add_argument("--input", type=Path, help="a file with one input, to run once")
    parser.add_argument("--seeded", action="store_true", help="no coverage, even with atheris")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name: str, count: int, options: argparse.Namespace) -> Figures:
    command = [sys.executable, "-P", "-m", "runs.fuzz", "--child", name, "--inputs", str(count)]
    command += ["--seed", str(options.seed), "--out", str(options.out)]
    command += ["--seeded"] if options.seeded else []
    report = options.out / f"{name}.json"
    report.unlink(missing_ok=True)
    with (options.out / f"{name}.log").open("w") as log:
        ended = subprocess.run(command, stdout=log, stderr=log, check=False)
    if report.exists():
        figures = Figures(**json.loads(report.read_text()))
    else:
        figures = Figures(name, "?", defect=f"the process ended with {ended.returncode}")
    print(
        f"{name:18} {figures.led_by:9} {figures.inputs:10,}"
        f" {figures.inputs / max(figures.seconds, 1e-9):9,.0f} {figures.slowest_ms:6.0f} ms"
        f" {figures.peak_mb:5.0f} MB  {figures.defect}",
        flush=True,
    )
    return figures


def _once(chosen: list[str], path: Path) -> int:
    for name in chosen:
        _targets().target(name).check(path.read_bytes())
    return 0


def _targets() -> Any:
    """The module, imported when it is asked for: atheris has to be there before it."""
    return import_module("tests.fuzz.targets")


# ---- the process of one target -------------------------------------------------------------------


def _child(options: argparse.Namespace) -> int:
    if not options.seeded and find_spec("atheris") is not None:
        return _led_by_coverage(options)
    one = _targets().target(options.child)
    watched = Watched(one.check, Figures(one.name, "seed"), options)
    watched.begin(one.corpus)
    changed = import_module("tests.fuzz.mutations").inputs
    for data in changed(one.corpus, options.seed, options.inputs, one.bytes_max):
        watched(data)
    return 0


def _led_by_coverage(options: argparse.Namespace) -> int:
    atheris = import_module("atheris")
    # Imported within, so that every branch of ours reports when it is taken.
    with atheris.instrument_imports(include=["broker", "schemas"], enable_loader_override=False):
        one = _targets().target(options.child)
    corpus = options.out / f"corpus-{one.name}"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(one.corpus):
        (corpus / f"seed-{number:04d}").write_bytes(data)
    flags = [f"-seed={options.seed}", f"-max_len={one.bytes_max}", "-len_control=0"]
    flags += [f"-timeout={HANG_S}"]
    flags += ["-rss_limit_mb=0", "-print_final_stats=0", "-verbosity=1", "-detect_leaks=0"]
    prefix = f"-artifact_prefix={options.out}/{one.name}-"
    watched = Watched(one.check, Figures(one.name, "coverage"), options)
    watched.begin(one.corpus)
    atheris.Setup([sys.argv[0], *flags, prefix, str(corpus)], watched)
    atheris.Fuzz()
    return 0


class Watched:
    """A target whose inputs are counted and measured; ends the process after the last one."""

    def __init__(
        self, check: Callable[[bytes], None], figures: Figures, options: argparse.Namespace
    ) -> None:
        self._check, self._figures, self._out = check, figures, options.out
        self._inputs_max = options.inputs
        self._began_s = time.monotonic()
        self._peak = _peak_bytes()

    def begin(self, corpus: Iterable[bytes]) -> None:
        """Run the corpus unmeasured: what is imported and cached on first use is no hang."""
        for data in corpus:
            self._try(data)
        self._began_s, self._peak = time.monotonic(), _peak_bytes()

    def _try(self, data: bytes) -> None:
        try:
            self._check(data)
        except BaseException as error:
            self._defect(data, f"{type(error).__name__}: {str(error)[:100]}")
            raise

    def __call__(self, data: bytes) -> None:
        began_s = time.thread_time()
        self._try(data)
        took_s = time.thread_time() - began_s
        figures = self._figures
        figures.inputs += 1
        figures.slowest_ms = max(figures.slowest_ms, took_s * 1e3)
        peak = _peak_bytes()
        grown, self._peak = peak - self._peak, peak
        if took_s > SLOW_S:
            self._defect(data, f"took {took_s:.1f} s")
            os._exit(DEFECT)
        if grown > GROWTH_BYTES_MAX:
            self._defect(data, f"took {grown >> 20} MiB")
            os._exit(DEFECT)
        if figures.inputs >= self._inputs_max:
            self._report()
            os._exit(0)

    def _defect(self, data: bytes, what: str) -> None:
        path = self._out / f"{self._figures.target}.input"
        path.write_bytes(data)
        self._figures.defect = f"{what}; the input is in {path}"
        self._report()

    def _report(self) -> None:
        self._figures.seconds = time.monotonic() - self._began_s
        self._figures.peak_mb = _peak_bytes() / 1e6
        path = self._out / f"{self._figures.target}.json"
        path.write_text(json.dumps(asdict(self._figures)))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
