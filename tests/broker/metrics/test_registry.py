"""Values that are computed on their way from the statistics of actors to a sample."""

from pathlib import Path

from actors import ActorStatistics, SystemClock
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.metrics.exposition import Exposition
from broker.metrics.process_figures import ProcessFigures, ProcessFiguresReader
from broker.metrics.view import Sources
from broker.node.state.channel_meters import Meters
from broker.node.state.open_channels import OpenChannels

NO_FIGURES = ProcessFigures(7.0, 1.5, 10, None, None, None, None)


def samples(
    *statistics: ActorStatistics, process: ProcessFigures = NO_FIGURES
) -> dict[str, list[float]]:
    sources = Sources(
        statistics=lambda: statistics,
        channels=OpenChannels(0),
        meters=Meters(),
        edge=EdgeMeters(),
        broadcasts=None,
        damages=tuple,
        connections=int,
        open_calls=int,
        process=lambda: process,
        clock=SystemClock(),
    )
    found = Exposition(sources).families()
    return {it.name: [sample.value for sample in it.samples] for it in found}


def test_late_peers_are_counted_not_the_commas_of_their_names() -> None:
    shown: dict[str, int | float | str] = {"silent": "a,b/p,q, … 21 more", "silent_peers": 23}
    barrier = ActorStatistics("/root/timesync/hard_barrier", 1, "actor", "running", extra=shown)
    assert samples(barrier)["tidemark_timesync_silent_peers"] == [23]


def test_what_the_system_does_not_tell_has_no_sample(tmp_path: Path) -> None:
    found = samples()
    assert found["process_cpu_seconds"] == [1.5]
    assert found["process_open_fds"] == found["tidemark_data_free_bytes"] == []
    gone = ProcessFiguresReader(tmp_path / "away", int, open_files=[tmp_path / "none"]).read()
    assert (gone.open_files, gone.disk_free_bytes, gone.disk_total_bytes) == (None, None, None)


def test_an_open_file_is_one_more(tmp_path: Path) -> None:
    reader = ProcessFiguresReader(tmp_path, int)
    before = reader.read().open_files
    assert before is not None
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        assert reader.read().open_files == before + 2
    assert reader.read().open_files == before
