"""The client behind plain calls, when there is no broker yet."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.client import Client, ConnectionLost
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadAddress
from broker.spark.gateway import Gateway
from broker.spark.server_options import Server
from broker.spark.source.progress_report import ProgressReporter
from tests.broker_process import BrokerProcess, free_port

WAIT_S_MAX = 60


async def _collections(log: Client) -> int:
    return len(await log.collections.list())


async def _listed(log: Client) -> None:
    await _collections(log)


def test_an_address_that_is_none_is_said_to_be_none_at_once() -> None:
    with pytest.raises(BadAddress, match="nonsense"):
        Gateway(Server("nonsense", "by-dev")).collections()


def test_what_is_tried_once_says_that_nobody_is_there() -> None:
    gateway = Gateway(Server(f"127.0.0.1:{free_port()}", "by-dev"))
    with pytest.raises(ConnectionLost, match="cannot reach"):
        gateway.attempt(_listed)


def test_a_broker_that_is_away_is_told_of_progress_once_and_then_left_in_peace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each try may take two seconds, and the query waits for it."""
    gateway = Gateway(Server(f"127.0.0.1:{free_port()}", "by-dev"))
    progress = ProgressReporter("nightly")
    for tick in range(7, 12):
        progress.processed(gateway, [NewVChannel("by-dev-rootcoord-dml_0_1v0")], tick)  # no error
    assert [it.getMessage()[:42] for it in caplog.records if it.name == "tidemark.spark"] == [
        "tidemark: cannot report tick 7 to cursor '"
    ]


def test_a_first_connection_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    asking = Gateway(Server(listen, "by-dev"), first_s=WAIT_S_MAX)
    writing = Gateway(Server(listen, "by-dev"), first_s=WAIT_S_MAX)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(asking.collections)
        begun = threads.submit(lambda: writing.begin(_collections).result(WAIT_S_MAX))
        with BrokerProcess(tmp_path / "data", listen):
            assert asked.result(WAIT_S_MAX) == []
            assert begun.result(WAIT_S_MAX) == 0
            asking.close()
            writing.close()


@pytest.mark.parametrize(("stalled_s", "tries"), [(0.0, 2), (WAIT_S_MAX, 1)])
def test_a_first_call_is_tried_once_more_only_after_the_machine_stood_still(
    tmp_path: Path, stalled_s: float, tries: int
) -> None:
    tried: list[int] = []

    async def breaks_once(log: Client) -> int:
        tried.append(len(tried))
        if len(tried) == 1:
            raise ConnectionLost("nothing came back")
        return await _collections(log)

    listen = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path / "data", listen):
        gateway = Gateway(Server(listen, "by-dev"), first_s=0.0, stalled_s=stalled_s)
        if tries == 1:
            with pytest.raises(ConnectionLost, match="nothing came back"):
                gateway._call(breaks_once)
        else:
            assert gateway._call(breaks_once) == 0
        gateway.close()
    assert len(tried) == tries
