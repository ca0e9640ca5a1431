"""`tidemark produce` against a real broker: formats, bad input, Ctrl-C, and where to go on."""

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from broker.client import connect
from schemas.generated.milvus.proto import schema as milvus
from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, ForkedProcess, run_forked

ROWS = 40_000
TABLE = pa.table({"k": pa.array(range(ROWS)), "t": [f"x{it}" for it in range(ROWS)]})
NUMBERS = count()
PATIENCE_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("produce") / "data", pchannels="3") as broker:
        yield broker.address


def tidemark(
    *arguments: str, server: str, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    return run_forked(
        [*COMMAND, *arguments],
        given=given,
        timeout=PATIENCE_S,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def started(*arguments: str, server: str) -> "subprocess.Popen[bytes]":
    return ForkedProcess(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def written(folder: Path, kind: str) -> Path:
    file = folder / f"rows.{kind}"
    match kind:
        case "jsonl":
            lines = [json.dumps(it) + "\n" for it in TABLE.to_pylist()]
            file.write_text("".join(lines))
        case "csv":
            csv.write_csv(TABLE, file)
        case "parquet":
            parquet.write_table(TABLE, file, row_group_size=3000)
        case "arrow":
            with pa.ipc.new_file(file, TABLE.schema) as out:
                out.write_table(TABLE, 3000)
        case _:
            with pa.ipc.new_stream(file, TABLE.schema) as out:
                out.write_table(TABLE, 3000)
    return file


async def made(server: str, schema: pa.Schema | None = TABLE.schema) -> str:
    async with connect(server) as log:
        return (await log.collections.create(f"c{next(NUMBERS)}", shards=2, schema=schema)).name


async def keys(server: str, name: str) -> list[int]:
    """The column `k` of all rows, sorted."""
    async with connect(server) as log:
        batches = [it async for it in log.read_arrow(name, columns=["k"], until="now")]
    return sorted(it for batch in batches for it in batch.column("k").to_pylist())


async def lines_of(server: str, name: str) -> list[bytes]:
    async with connect(server) as log:
        return [it.payload async for it in log.read(name, until="now").messages()]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow", "arrows"])
async def test_rows_of_each_format_are_stored_as_they_are(
    server: str, tmp_path: Path, kind: str
) -> None:
    name, file = await made(server), written(tmp_path, kind)
    how = ("--format", kind.removesuffix("s"), "--key", "k")
    produced = tidemark("produce", name, *how, str(file), server=server)
    assert produced.returncode == 0, produced.stderr
    assert produced.stdout.startswith(b"40,000 rows, ")
    assert await keys(server, name) == list(range(ROWS))
    rest = tidemark("produce", name, *how, "--skip", "39990", str(file), server=server)
    assert rest.stdout.startswith(b"10 rows, "), rest.stderr
    piped = tidemark("produce", name, *how, "--json", server=server, given=file.read_bytes())
    if kind == "parquet":
        assert piped.returncode == 1
        assert b"it needs a file, not a pipe" in piped.stderr
    else:
        assert json.loads(piped.stdout)["rows"] == ROWS, piped.stderr


BAD: list[tuple[str, str, str]] = [
    ("jsonl", '{"k": 1}\n\n{"k": "one"}\n', "stdin, line 3: column 'k': \"one\" is not int64"),
    ("jsonl", '{"k": 1, "z": 2}\n', "stdin, line 1: field 'z' is no column; the columns are"),
    ("jsonl", '{"k": 1}\n{"k": 2\n', "stdin, line 2: this is not JSON"),
    ("jsonl", '{"t": "a"}\n', "stdin, line 1: column 'k' may not be null"),
    ("csv", "k,t\n1,a\none,b\n", "stdin, line 3: In CSV column #0: .* invalid value 'one'"),
    ("csv", "k,t\n1,a\n2\n", "stdin, line 3: .*Expected 2 columns, got 1"),
    ("csv", "k,t\n1,a\n,b\n", "stdin, row 2: column 'k' may not be null"),
    ("csv", "k,q\n1,a\n", r"stdin has columns \['q'\] that the collection has not"),
    ("arrow", "what is this", "stdin: "),
]


@pytest.mark.parametrize(("kind", "given", "said"), BAD)
async def test_bad_input_names_the_file_the_line_and_what_is_wrong(
    server: str, kind: str, given: str, said: str
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("t", pa.string())])
    name = await made(server, schema)
    produced = tidemark("produce", name, "--format", kind, server=server, given=given.encode())
    assert produced.returncode == 1
    assert re.search(said, produced.stderr.decode()), produced.stderr
    assert produced.stderr.endswith(b"; nothing is stored\n")
    assert await keys(server, name) == []


async def test_a_bad_row_ends_a_run_while_more_input_is_on_its_way(server: str) -> None:
    """Arrow reads ahead on a thread of its own, which must not abort the program at its end."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("t", pa.string())])
    name = await made(server, schema)
    for _ in range(5):
        with started("produce", name, "--format", "csv", server=server) as produced:
            assert produced.stdin is not None
            with suppress(BrokenPipeError):
                produced.stdin.write(b"k,t\none,a\n" + b"1,b\n" * 400_000)
                produced.stdin.flush()
            assert produced.wait(PATIENCE_S) == 1
            with suppress(BrokenPipeError):
                produced.stdin.close()
            assert produced.stderr is not None
            assert b"line 2: In CSV column #0" in produced.stderr.read()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
async def test_behind_a_bad_line_another_run_goes_on_where_the_first_one_says(
    server: str, tmp_path: Path, kind: str
) -> None:
    name, file = await made(server), written(tmp_path, kind)
    good = file.read_bytes()
    with file.open("ab") as out:
        # Far behind, so that much is stored before it is met.
        for number in range(ROWS, 200_000):
            text = f'{{"k": {number}}}\n' if kind == "jsonl" else f"{number},x\n"
            out.write(text.encode())
        out.write(b"what\n")
    first = tidemark("produce", name, "--format", kind, str(file), server=server)
    assert first.returncode == 1
    assert f"{file}, line {200_001 + (kind == 'csv'):,}: ".encode() in first.stderr
    told = re.search(rb"; ([\d,]+) rows are stored, .* to go on: (.*)\n", first.stderr)
    assert told is not None, first.stderr
    stored = int(told[1].replace(b",", b""))
    assert await keys(server, name) == list(range(stored))
    file.write_bytes(file.read_bytes().removesuffix(b"what\n"))
    rest = told[2].decode().split()
    second = tidemark("produce", name, "--format", kind, *rest, server=server)
    assert second.returncode == 0, second.stderr
    assert await keys(server, name) == list(range(200_000))
    assert good


async def test_rows_and_messages_each_need_their_kind_of_collection(server: str) -> None:
    rows, plain = await made(server), await made(server, None)
    refused = tidemark("produce", rows, server=server, given=b'{"k": 1, "t": "a"}\n')
    assert refused.returncode == 1
    assert b"takes rows, not messages: say how the input is written, --format" in refused.stderr
    refused = tidemark("produce", plain, "--format", "csv", server=server, given=b"k\n1\n")
    assert refused.returncode == 1
    assert b"has no schema, so it takes messages" in refused.stderr
    assert b"collection create --schema" in refused.stderr


@pytest.mark.parametrize("target", ["nosuch", "no-such.one", "by-dev-rootcoord-dml_0_999v9"])
async def test_a_name_of_nothing_is_refused_also_without_input(server: str, target: str) -> None:
    produced = tidemark("produce", target, server=server)
    assert produced.returncode == 1
    assert target.encode() in produced.stderr
    assert produced.stdout == b""


async def test_ctrl_c_says_what_is_stored_and_where_to_go_on(server: str) -> None:
    name = await made(server, None)
    given = [b"line %d" % it for it in range(2500)]
    with started("produce", name, "--batch", "1000", server=server) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"\n".join(given[:2000]) + b"\nhalf")
        producer.stdin.flush()
        async with connect(server) as log:
            found = 0
            async for batch in log.read(name):
                found += len(batch.messages)
                if found == 2000:
                    break
        producer.send_signal(signal.SIGINT)
        # Not `communicate`, which closes stdin: that would end the input.
        assert producer.stderr is not None
        said = producer.stderr.read().decode()
        assert producer.wait(PATIENCE_S) == 130
    assert "interrupted; 2,000 messages are stored, up to line 2,000 of stdin, byte " in said
    assert said.endswith("to go on: --skip 2000, with the same input\n")
    rest = ("--skip", "2000")
    everything = b"\n".join(given)
    again = tidemark("produce", name, *rest, server=server, given=everything)
    assert again.returncode == 0, again.stderr
    assert sorted(await lines_of(server, name)) == sorted(given)


async def test_a_broker_that_goes_away_leaves_the_place_to_go_on_from(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, pchannels="3") as broker:
        name = await made(broker.address, None)
        with started("produce", name, server=broker.address) as producer:
            assert producer.stdin is not None
            producer.stdin.write(b"one\ntwo\n")
            producer.stdin.flush()
            async with connect(broker.address) as log:
                found = 0
                async for batch in log.read(name):
                    found += len(batch.messages)
                    if found == 2:
                        break
            broker.kill()
            _, said = producer.communicate(b"three\n", timeout=PATIENCE_S)
    assert producer.returncode == 1
    assert b"2 messages are stored, up to line 2 of stdin, byte 8" in said
    with BrokerProcess(data, pchannels="3") as broker:
        again = tidemark(
            *("produce", name, "--skip", "2"), server=broker.address, given=b"one\ntwo\nthree\n"
        )
        assert again.returncode == 0, again.stderr
        assert sorted(await lines_of(broker.address, name)) == [b"one", b"three", b"two"]


def run_in_shell(line: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)


async def test_a_closed_stdout_changes_nothing(server: str) -> None:
    name = await made(server, None)
    command = f"{' '.join(COMMAND)} produce {name} --server {server}"
    assert run_in_shell(f"printf 'one\\n' | {command} | true").stderr == b""
    assert await lines_of(server, name) == [b"one"]


def started_on_terminal(name: str, server: str) -> "tuple[subprocess.Popen[bytes], int]":
    here, there = pty.openpty()
    producer = subprocess.Popen(
        [*COMMAND, "produce", name],
        stdin=there,
        stderr=there,
        stdout=subprocess.PIPE,
        env=os.environ | {"TIDEMARK_SERVER": server, "TERM": "xterm"},
    )
    os.close(there)
    return producer, here


async def test_no_progress_bar_is_drawn_where_somebody_types(server: str) -> None:
    name = await made(server, None)
    producer, here = started_on_terminal(name, server)
    os.write(here, b"typed\n\x04")
    out, _ = producer.communicate(timeout=PATIENCE_S)
    shown = os.read(here, 100_000).decode()
    os.close(here)
    assert out.startswith(b"1 message, 5 bytes in ")
    assert "reading from the terminal; Ctrl-D ends the input" in shown
    assert "appending" not in shown
    assert "\x1b[" not in shown


def test_what_the_json_says_of_columns_makes_the_same_collection_again(
    server: str, tmp_path: Path
) -> None:
    name, file = f"c{next(NUMBERS)}", tmp_path / "columns.json"
    columns: list[dict[str, Any]] = [
        {"name": "k", "type": "int64", "nullable": False},
        {"name": "l", "type": "list<item: string>", "nullable": True},
    ]
    file.write_text(json.dumps(columns))
    options = ("--schema", str(file), "--json")
    first = json.loads(tidemark("collection", "create", name, *options, server=server).stdout)
    assert first["schema"] == columns
    taken = tidemark("collection", "create", name, *options, server=server)
    assert taken.returncode == 1
    assert b"exists already" in taken.stderr
    again = tidemark("collection", "create", name, *options, "--if-not-exists", server=server)
    assert json.loads(again.stdout) == first
    other = tidemark("collection", "create", name, "--if-not-exists", server=server)
    assert other.returncode == 1
    assert b"it has a schema, with columns k, l" in other.stderr


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow", "arrows"])
async def test_a_collection_like_a_data_file_takes_its_rows(
    server: str, tmp_path: Path, kind: str
) -> None:
    name, file = f"c{next(NUMBERS)}", written(tmp_path, kind)
    created = tidemark("collection", "create", name, "--like", str(file), server=server)
    assert created.returncode == 0, created.stderr
    how = ("--format", kind.removesuffix("s"))
    produced = tidemark("produce", name, *how, str(file), server=server)
    assert produced.returncode == 0, produced.stderr
    assert await keys(server, name) == list(range(ROWS))


def test_rows_and_lines_go_to_the_partition_that_is_named(server: str) -> None:
    async def created() -> int:
        async with connect(server) as log:
            field = milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True)
            schema = bytes(milvus.CollectionSchema(name="parted", fields=[field]))
            await log.master.create_collection("parted", milvus_schema=schema)
            return (await log.master.create_partition("parted", "late")).id

    made = anyio.run(created)
    done = tidemark("produce", "parted", "--partition", "late", server=server, given=b"a\nb\n")
    assert done.returncode == 0, done.stderr
    done = tidemark(
        "consume", "parted", "--from", "all", "--limit", "2", "--format",
        "%{payload} %{partition_id}", server=server,
    )  # fmt: skip
    assert sorted(done.stdout.decode().split("\n")) == ["", f"a {made}", f"b {made}"]
    lost = tidemark("produce", "parted", "--partition", "never", server=server, given=b"a\n")
    assert lost.returncode == 1
    assert b"collection 'parted' has no partition 'never'" in lost.stderr


async def test_groups_get_lines_when_they_are_due_and_pass_over_what_is_too_old(
    server: str,
) -> None:
    lines, rows = await made(server, None), await made(server, pa.schema([("k", pa.int64())]))
    given = tidemark("produce", rows, "--format", "jsonl", "--deliver-at", "1h", server=server)
    assert given.returncode == 2
    assert b"--deliver-at is for lines" in given.stderr
    for target, format, text in ((lines, (), b"a\n"), (rows, ("--format", "jsonl"), b'{"k": 1}\n')):
        for times in (("--ttl", "0.001"), ("--ttl", "600")):
            given = tidemark("produce", target, *format, *times, server=server, given=text)
            assert given.returncode == 0, given.stderr
    given = tidemark("produce", lines, "--deliver-at", "1h", server=server, given=b"later\n")
    assert given.returncode == 0, given.stderr
    async with connect(server) as log:
        for target, payload in ((lines, b"a"), (rows, None)):
            found = 0
            async with log.group("workers").join(target) as member:
                batch = await member.__anext__()
                found += len(batch)
                assert payload is None or batch.payloads == [payload]
                await batch.ack()
                with anyio.move_on_after(1):
                    found += len(await member.__anext__())
            assert found == 1, "one is too old, another one not due"
