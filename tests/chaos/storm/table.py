"""A report as text: faults by kind, operations by outcome, how long calls took, what is wrong."""

from collections import Counter, defaultdict

from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.run import Report, quantile


def table(report: Report) -> list[str]:
    history = report.history
    lines = [f"seed {report.options.seed}, {report.options.seconds:.0f} s, {report.starts} starts"]
    lines += ["", f"{'fault':20}{'struck':>8}{'found nobody':>14}"]
    for kind in report.options.deck.lasting_s:
        lines.append(f"{kind:20}{report.struck[kind]:8}{report.missed[kind]:14}")
    lines.append(f"{'all':20}{report.struck.total():8}{report.missed.total():14}")
    outcomes = Counter((it.sort, it.outcome.value) for it in history.operations)
    lines += ["", f"{'operation':20}{'acknowledged':>14}{'absent':>8}{'unknown':>9}"]
    for sort in sorted({sort for sort, _ in outcomes}):
        counts = [outcomes[sort, it] for it in ("acknowledged", "absent", "unknown")]
        lines.append(f"{sort:20}{counts[0]:14}{counts[1]:8}{counts[2]:9}")
    told = Counter(it.told for it in history.ddl.requests)
    counts = [told[it] for it in (Told.DONE, Told.REFUSED, Told.OPEN)]
    lines.append(f"{'definition':20}{counts[0]:14}{counts[1]:8}{counts[2]:9}")
    groups = history.groups
    acked = Counter(it.told.value for it in groups.acked)
    lines += ["", f"{'groups':20}{'done':>14}{'refused':>8}{'open':>9}"]
    lines.append(f"{'acknowledgement':20}{acked['done']:14}{acked['refused']:8}{acked['open']:9}")
    again = Counter(it.told.value for it in groups.resets)
    lines.append(f"{'seek or drop':20}{again['done']:14}{again['refused']:8}{again['open']:9}")
    lines.append(f"{'batches taken':20}{len(groups.taken):14}")
    took = defaultdict[str, list[float]](list)
    for call in history.calls:
        if call.ended_s is not None:
            took[call.sort].append(call.ended_s - call.began_s)
    lines += ["", f"{'call':20}{'number':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}"]
    for sort, times in sorted(took.items()):
        figures = [quantile(times, 0.5), quantile(times, 0.99), max(times)]
        shown = "".join(f"{it * 1e3:9.0f}" for it in figures)
        lines.append(f"{sort:20}{len(times):8}{shown}")
    stored = sum(map(len, history.final.values()))
    lines += [
        "",
        f"{stored} messages stored, {len(history.readings)} readers, {len(history.cuts)} cuts",
        f"{len(history.owned)} owners seen; we stood still {history.stall_s:.2f} s at most",
        f"{len(report.violations)} violations",
    ]
    return lines
