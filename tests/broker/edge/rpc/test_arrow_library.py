"""Arrow's library on a server: there when it is used, and loaded beside the loop."""

import threading

import pytest

from broker.edge.rpc import arrow_library
from broker.edge.rpc.arrow_library import load_arrow
from schemas.arrow import columns
from schemas.arrow.columns import NoArrow, arrow, arrow_is_loaded


async def test_it_is_loaded_once_and_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow.cache_clear()
    loaders: list[threading.Thread] = []

    def loading() -> object:
        loaders.append(threading.current_thread())
        return arrow()

    monkeypatch.setattr(arrow_library, "arrow", loading)
    for _ in range(3):
        await load_arrow()
    assert arrow_is_loaded()
    assert len(loaders) == 1
    assert loaders[0] is not threading.main_thread()


async def test_where_it_is_missing_its_users_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow.cache_clear()

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(columns, "import_module", missing)
    await load_arrow()
    assert not arrow_is_loaded()
    with pytest.raises(NoArrow, match=r"pyarrow .*pip install '\.\[arrow\]'"):
        arrow()
