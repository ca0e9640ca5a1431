"""What `tidemark wal dump` and `tidemark wal verify` print."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from broker.cli.counted import counted
from broker.cli.session import FAILED, USAGE, fail
from broker.cli.standard_streams import end_on_closed_pipe
from broker.model.message import KNOWN_TYPES, MessageType
from broker.wal.inspect import InspectionReport, Row, dump, verify

WAL_FOLDER = "wal"


def dump_log(path: Path, *, as_json: bool) -> None:
    """Print one line per record; a closed pipe is a success."""
    with end_on_closed_pipe():
        for row in dump(_log_at(path)):
            sys.stdout.write((json.dumps(asdict(row)) if as_json else _line(row)) + "\n")


def verify_log(path: Path, *, as_json: bool) -> None:
    """Print the report; exit code 1 when there is damage."""
    report = verify(_log_at(path))
    if as_json:
        sys.stdout.write(json.dumps({**asdict(report), "healthy": report.healthy}) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _summary(report))
    if not report.healthy:
        raise SystemExit(FAILED)


def _log_at(path: Path) -> Path:
    found = path / WAL_FOLDER if (path / WAL_FOLDER).is_dir() else path
    if found.is_file() or any(found.glob("*.log")) or any(found.glob("*/*.log")):
        return found
    return fail(f"no log found at {path}", USAGE)


def _line(row: Row) -> str:
    place = f"{row.file}:{row.offset}"
    if row.damage:
        return f"{place}  DAMAGED  {row.damage}"
    if row.given_back:
        ids = f"ids {row.base_id}..{row.base_id + row.messages - 1}"
        return f"{place}  term {row.term}  {ids}  tick {row.base_tick}  given back"
    kind = MessageType(row.kind).name if row.kind in KNOWN_TYPES else str(row.kind)
    last_id = row.base_id + row.messages - 1
    return (
        f"{place}  term {row.term}  ids {row.base_id}..{last_id}  tick {row.base_tick}"
        f"  {kind}  {row.vchannel or '-'}  {row.body_bytes:,} bytes"
    )


def _summary(report: InspectionReport) -> list[str]:
    counts = {
        "log": report.logs,
        "segment": report.segments,
        "record": report.records,
        "message": report.messages,
        "byte": report.size_bytes,
    }
    lines = [", ".join(counted(number, thing) for thing, number in counts.items())]
    lines += [_line(row) for row in report.damages]
    lines += [
        f"{name}  belongs to no segment: a crash left it, and the next start removes it"
        for name in report.leftovers
    ]
    lines.append("healthy" if report.healthy else _damaged(len(report.damages)))
    return lines


def _damaged(places: int) -> str:
    return counted(places, "damaged place")
