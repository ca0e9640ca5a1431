"""`tidemark collection describe`, `partition`, `alias`, `index`, `database` and `ids`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import connect
from schemas.generated.milvus.proto import common
from schemas.generated.milvus.proto import schema as milvus
from tests.local_broker import local_broker


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, BlockingPortal]]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address, portal


def tidemark(server: str, *arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, [*arguments, "--server", server])
    assert found.exit_code == code, found
    return found.stdout + found.stderr


async def with_vectors(server: str) -> None:
    dim = [common.KeyValuePair(key="dim", value="8")]
    fields = [
        milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True),
        milvus.FieldSchema(name="vector", data_type=milvus.DataType(101), type_params=dim),
    ]
    schema = bytes(milvus.CollectionSchema(name="items", fields=fields))
    async with connect(server) as log:
        await log.master.create_collection("items", milvus_schema=schema)


def test_a_collection_is_described_with_all_that_it_has(
    server: tuple[str, BlockingPortal],
) -> None:
    address, portal = server
    portal.call(with_vectors, address)
    assert "partition 2026 of items created (id " in tidemark(
        address, "partition", "create", "items", "2026"
    )
    assert "live stands for items" in tidemark(address, "alias", "create", "items", "live")
    shown = tidemark(address, "collection", "describe", "live")
    for part in ("items", "default", "2026 (", "_default (", "live", "vector FLOAT_VECTOR dim=8"):
        assert part in shown
    found = json.loads(tidemark(address, "collection", "describe", "items", "--json"))
    assert (found["collection"], found["aliases"]) == ("items", ["live"])
    assert sorted(found["partitions"]) == ["2026", "_default"]
    assert found["fields"] == ["id INT64 primary key", "vector FLOAT_VECTOR dim=8"]
    text = tidemark(address, "collection", "describe", "unknown", code=1)
    assert "there is no collection 'unknown'" in text


def test_the_retention_of_a_collection_is_set_changed_and_described(
    server: tuple[str, BlockingPortal],
) -> None:
    address, _ = server
    tidemark(address, "collection", "create", "clicks", "--retention-ms", "86400000")
    assert "keeps messages for 1 d" in tidemark(
        address, "collection", "alter", "clicks", "--retention-ms", "86400000"
    )
    text = tidemark(address, "collection", "alter", "clicks", "--retention-bytes", "1048576")
    assert "keeps messages for 1 d, at most the newest 1.00 MiB of each vchannel" in text
    assert "messages for 1 d" in tidemark(address, "collection", "describe", "clicks")
    found = json.loads(tidemark(address, "collection", "describe", "clicks", "--json"))
    assert found["retention"] == {"retention_ms": 86_400_000, "retention_bytes": 1_048_576}
    for name in ("retention-ms", "retention-bytes"):
        answer = tidemark(address, "collection", "alter", "clicks", f"--{name}", "-1", "--json")
    assert json.loads(answer)["retention"] == {"retention_ms": None, "retention_bytes": None}
    assert "everything" in tidemark(address, "collection", "describe", "clicks")
    text = tidemark(address, "collection", "alter", "clicks", "--retention-ms", "0", code=1)
    assert "retention_ms is 0; it must be 1000 to" in text
    assert "give --add-columns" in tidemark(address, "collection", "alter", "clicks", code=2)


def test_partitions_are_listed_until_they_are_dropped(server: tuple[str, BlockingPortal]) -> None:
    address, _ = server
    tidemark(address, "collection", "create", "rows")
    tidemark(address, "partition", "create", "rows", "p")
    rows = json.loads(tidemark(address, "partition", "list", "rows", "--json"))
    assert [it["partition"] for it in rows] == ["_default", "p"]
    assert all(it["id"] > 0 for it in rows)
    assert "partition p of rows dropped" in tidemark(address, "partition", "drop", "rows", "p")
    assert "p " not in tidemark(address, "partition", "list", "rows").splitlines()[-1]
    text = tidemark(address, "partition", "drop", "rows", "_default", code=1)
    assert "the default partition cannot be deleted" in text


def test_an_alias_is_moved_only_with_alter(server: tuple[str, BlockingPortal]) -> None:
    address, _ = server
    for name in ("one", "two"):
        tidemark(address, "collection", "create", name)
    tidemark(address, "alias", "create", "one", "live")
    text = tidemark(address, "alias", "create", "two", "live", code=1)
    assert "alias of collection 'one' already; alter it" in text
    tidemark(address, "alias", "create", "two", "live", "--alter")
    rows = json.loads(tidemark(address, "alias", "list", "--json"))
    assert rows == [{"alias": "live", "collection": "two"}]
    assert json.loads(tidemark(address, "alias", "list", "one", "--json")) == []
    assert "alias live dropped" in tidemark(address, "alias", "drop", "live")
    assert json.loads(tidemark(address, "alias", "list", "--json")) == []


def test_an_index_is_listed_with_its_parameters(server: tuple[str, BlockingPortal]) -> None:
    address, portal = server
    portal.call(with_vectors, address)
    create = ("index", "create", "items", "vector")
    assert "created (id " in tidemark(address, *create, "-p", "index_type=HNSW", "-p", "M=8")
    shown = tidemark(address, "index", "list", "items")
    assert "index_type=HNSW" in shown
    assert "pending" in shown
    (row,) = json.loads(tidemark(address, "index", "list", "items", "--json"))
    assert (row["name"], row["params"]) == ("_default_idx", {"M": "8", "index_type": "HNSW"})
    for bad in (["-p", "HNSW"], ["-p", "=x"], ["-p", "a=1", "-p", "a=2"]):
        assert "must be KEY=VALUE" in tidemark(address, *create, *bad, code=2)
    text = tidemark(address, "index", "create", "items", "id", "-p", "a=1", code=1)
    assert "an index needs a vector field" in text.replace("\n", " ")
    tidemark(address, "index", "drop", "items", "vector")
    assert json.loads(tidemark(address, "index", "list", "items", "--json")) == []


def test_databases_are_listed_until_they_are_dropped(server: tuple[str, BlockingPortal]) -> None:
    address, _ = server
    assert "database sales created (id " in tidemark(address, "database", "create", "sales")
    rows = json.loads(tidemark(address, "database", "list", "--json"))
    assert [it["database"] for it in rows] == ["default", "sales"]
    text = tidemark(address, "partition", "list", "rows", "--database", "sales", code=1)
    assert "there is no collection 'rows'" in text
    assert "database sales dropped" in tidemark(address, "database", "drop", "sales")
    text = tidemark(address, "database", "drop", "default", code=1)
    assert "the default database cannot be dropped" in text


def test_ids_and_timestamps_are_taken_each_once(server: tuple[str, BlockingPortal]) -> None:
    address, _ = server
    first = json.loads(tidemark(address, "ids", "--count", "10", "--json"))
    second = json.loads(tidemark(address, "ids", "--json"))
    assert second["id"] >= first["id"] + 10
    assert second["timestamp"] >= first["timestamp"] + 10
    assert "10 of each, from these on" in tidemark(address, "ids", "-n", "10")
    tidemark(address, "ids", "-n", "0", code=2)


def test_collections_of_a_database_are_created_listed_altered_and_dropped(
    server: tuple[str, BlockingPortal], tmp_path: Path
) -> None:
    address, _ = server
    columns, more = tmp_path / "columns.json", tmp_path / "more.json"
    columns.write_text('[{"name": "k", "type": "int64", "nullable": false}]')
    more.write_text('{"at": "timestamp[ms]"}')
    sales = ("--database", "sales")
    tidemark(address, "database", "create", "sales")
    created = ("collection", "create", "items", "--schema", str(columns), *sales, "--json")
    made = json.loads(tidemark(address, *created))
    assert (made["name"], made["database"], len(made["schema"])) == ("items", "sales", 1)
    assert tidemark(address, "collection", "list", "--json") == "[]\n"
    listed = json.loads(tidemark(address, "collection", "list", *sales, "--json"))
    assert [it["id"] for it in listed] == [made["id"]]
    alter = ("collection", "alter", "items", "--add-columns", str(more), *sales)
    assert tidemark(address, *alter) == "collection items has 2 columns\n"
    altered = json.loads(tidemark(address, *alter, "--json"))
    assert [it["name"] for it in altered["schema"]] == ["k", "at"]
    assert "items" not in tidemark(address, "segments", "items", *sales)
    for wrong in (("alter", "items", "--add-columns", str(more)), ("drop", "items")):
        text = tidemark(address, "collection", *wrong, code=1)
        assert "there is no collection 'items'" in text
    assert "dropped" in tidemark(address, "collection", "drop", "items", *sales)
    assert tidemark(address, "collection", "list", *sales, "--json") == "[]\n"
    text = tidemark(address, "collection", "list", "--database", "nowhere", code=1)
    assert "there is no database 'nowhere'" in text
