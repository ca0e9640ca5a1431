"""One etcd for the tests of this room, and a store of its own for each of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from tests.local_etcd import EtcdServer


@pytest.fixture(scope="package")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
async def store(etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[EtcdMetaStore]:
    place = etcd_place(f"etcd://{etcd.address}/{tmp_path.name}")
    async with await EtcdMetaStore.open(place, owner="me") as opened:
        yield opened
