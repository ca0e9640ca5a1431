"""Values that are computed on their way from the statistics of actors to a sample."""

import subprocess
import sys
from pathlib import Path

from actors import ActorStatistics, SystemClock
from broker.core.pressure.storage_use import StorageBook, StorageUse, uses_of
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.metrics.exposition import Exposition
from broker.metrics.process_figures import ProcessFigures, ProcessFiguresReader
from broker.metrics.view import CoordinatorFigures, Sources
from broker.model.ids import TimeTick
from broker.node.state.channel_meters import Meters
from broker.node.state.open_channels import OpenChannels
from broker.timesync.cursor_places import CursorPlace, CursorPlaces

NO_FIGURES = ProcessFigures(7.0, 1.5, 10, None, None, None, None)


def samples(
    *statistics: ActorStatistics,
    process: ProcessFigures = NO_FIGURES,
    places: CursorPlaces | None = None,
    storage: StorageBook | None = None,
) -> dict[str, list[float]]:
    sources = Sources(
        statistics=lambda: statistics,
        channels=OpenChannels(0),
        meters=Meters(),
        edge=EdgeMeters(),
        coordinator=None if places is None else CoordinatorFigures(cursors=places),
        damages=tuple,
        connections=int,
        open_calls=int,
        process=lambda: process,
        clock=SystemClock(),
        storage=storage or StorageBook(),
    )
    found = Exposition(sources).families()
    return {it.name: [sample.value for sample in it.samples] for it in found}


def test_late_peers_are_counted_not_the_commas_of_their_names() -> None:
    shown: dict[str, int | float | str] = {"silent": "a,b/p,q, … 21 more", "silent_peers": 23}
    barrier = ActorStatistics("/root/timesync/hard_barrier", 1, "actor", "running", extra=shown)
    assert samples(barrier)["tidemark_timesync_silent_peers"] == [23]


def test_the_fullest_collections_have_series_of_what_they_store_and_may_store() -> None:
    book = StorageBook()
    book.now = uses_of([StorageUse(f"c{it}", 1000, {"p_1v0": it, "q_1v1": 1}) for it in range(150)])
    found = samples(storage=book)
    assert found["tidemark_collection_stored_bytes"] == [it + 1 for it in range(149, 49, -1)]
    assert found["tidemark_collection_storage_limit_bytes"] == [1000] * 100


def test_what_the_system_does_not_tell_has_no_sample(tmp_path: Path) -> None:
    found = samples()
    assert found["process_cpu_seconds"] == [1.5]
    assert found["process_open_fds"] == found["tidemark_data_free_bytes"] == []
    gone = ProcessFiguresReader(tmp_path / "away", int, open_files=[tmp_path / "none"]).read()
    assert (gone.open_files, gone.disk_free_bytes, gone.disk_total_bytes) == (None, None, None)


OPENS_TWO = """
import sys
from pathlib import Path
from broker.metrics.process_figures import ProcessFiguresReader

folder = Path(sys.argv[1])
reader = ProcessFiguresReader(folder, int)
counts = [reader.read().open_files]
with (folder / "one").open("w"), (folder / "two").open("w"):
    counts.append(reader.read().open_files)
counts.append(reader.read().open_files)
print(*counts)
"""


def test_an_open_file_is_one_more(tmp_path: Path) -> None:
    # In a process of its own: threads of other tests open files in this one.
    done = subprocess.run(
        [sys.executable, "-c", OPENS_TWO, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, between, after = map(int, done.stdout.split())
    assert (between, after) == (before + 2, before)


def test_a_cursor_is_as_far_behind_as_its_tick_and_never_ahead() -> None:
    places = CursorPlaces()
    places.seen = [
        CursorPlace("slow", "flights", TimeTick(7_000 << 18)),
        CursorPlace("new", "", TimeTick(11_000 << 18)),
    ]
    closed: dict[str, int | float | str] = {"tick": 10_000 << 18}
    producer = ActorStatistics("/root/timesync/tick_producer", 1, "actor", "running", extra=closed)
    assert samples(producer, places=places)["tidemark_cursor_lag_seconds"] == [3.0, 0.0]
    # Before the first tick nothing is known, and a process without a coordinator knows nothing.
    assert samples(places=places)["tidemark_cursor_lag_seconds"] == []
    assert samples(producer)["tidemark_cursor_lag_seconds"] == []
