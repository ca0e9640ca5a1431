"""A record of a commit is stored or not, and the answer is lost: what the Committer does then."""

from collections.abc import Mapping, Sequence
from functools import partial

import anyio
import pytest

from actors.testing import run_seeded
from broker.coordinator.commit.commit_records import APP_PREFIX, decode_app
from broker.core.txn.batch_commit import AppRecord
from broker.model.failure import Refused, StreamingCode
from broker.model.stage import BatchCommitted
from broker.ports.meta import MetaEntry, MetaError, WriteUnconfirmed
from tests.broker.coordinator.broadcast.broadcasting import FaultyStore
from tests.broker.coordinator.commit.test_committer import (
    Cluster,
    CommitFaults,
    cluster,
    scenario,
)

RECORDS = 9
"""Writes of records in `scenario`: begun, decided and ended, of three commits."""


class LosingRecords(FaultyStore):
    """Loses the answer of the `loses`th write of a record; then it fails all for `silent_s`.

    `applies`: whether that write took effect.
    """

    def __init__(self, loses: int, silent_s: float, *, applies: bool) -> None:
        super().__init__(CommitFaults())
        self.loses, self.silent_s, self.applies = loses, silent_s, applies
        self.written = 0
        self._silent_until_s = 0.0

    async def get(self, key: str) -> MetaEntry | None:
        self._pass()
        return await super().get(key)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        self._pass()
        self.written += any(key.startswith(APP_PREFIX) for key in (*puts, *deletes))
        lost = self.written == self.loses
        if lost and not self.applies:
            self._lose()
        revision = await super().write(puts, deletes=deletes, expect=expect)
        if lost:
            self._lose()
        return revision

    def stored(self) -> list[AppRecord]:
        return [
            decode_app(key, it.value)
            for key, it in self._entries.items()
            if key.startswith(APP_PREFIX)
        ]

    def _lose(self) -> None:
        self._silent_until_s = anyio.current_time() + self.silent_s
        raise WriteUnconfirmed("no answer; the write may have taken effect")

    def _pass(self) -> None:
        if anyio.current_time() < self._silent_until_s:
            raise MetaError("no answer")


async def check_as_stored(it: Cluster, store: LosingRecords) -> None:
    """What the Committer lists is what the store has."""
    shown = [(view.app, view.batch, view.under_way) for view in await it.views()]
    assert shown == [
        (
            known.app,
            -1 if known.done is None else known.done.batch,
            -1 if known.attempt is None else known.attempt.commit.batch,
        )
        for known in store.stored()
    ]


@pytest.mark.parametrize("silent_s", [0.0, 3.0])
@pytest.mark.parametrize("applies", [True, False])
def test_whichever_record_loses_its_answer_a_batch_takes_effect_once_or_never(
    applies: bool, silent_s: float
) -> None:
    async def main(loses: int) -> None:
        store = LosingRecords(loses, silent_s, applies=applies)
        it = cluster(CommitFaults(), store=store)
        async with it.system:
            await scenario(it)
            await check_as_stored(it, store)
        assert store.written >= RECORDS

    for loses in range(1, RECORDS + 1):
        run_seeded(loses, partial(main, loses))


@pytest.mark.parametrize("applies", [True, False])
def test_a_commit_whose_first_record_loses_its_answer_goes_on_if_it_was_stored(
    applies: bool,
) -> None:
    async def main() -> None:
        store = LosingRecords(1, 0.0, applies=applies)
        it = cluster(CommitFaults(), store=store)
        async with it.system:
            one = it.logs.stage(1)
            if applies:
                assert isinstance(await it.once(one), BatchCommitted)
            else:
                with pytest.raises(Refused, match="nothing was committed: no answer") as caught:
                    await it.once(one)
                assert caught.value.refusal.code is StreamingCode.INNER
                assert store.stored() == []
            await check_as_stored(it, store)

    run_seeded(1, main)


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("asks_again", [True, False])
def test_while_nobody_knows_whether_a_commit_is_recorded_the_answer_is_that_it_is_unknown(
    asks_again: bool, applies: bool
) -> None:
    async def main() -> None:
        store = LosingRecords(1, 30.0, applies=applies)
        it = cluster(CommitFaults(), store=store)
        async with it.system:
            one = it.logs.stage(1)
            with pytest.raises(Refused, match="commit it again, with the same") as caught:
                await it.once(one)
            assert caught.value.refusal.code is StreamingCode.UNKNOWN
            with pytest.raises(Refused, match="try again when it has ended"):
                await it.once(it.logs.stage(2))
            assert it.logs.states(one) == {"open"}
            if not asks_again:
                await anyio.sleep(60.0)
            elif applies:
                assert isinstance(await it.once(one), BatchCommitted)
            else:
                with pytest.raises(Refused, match="nothing of batch 1") as caught:
                    await it.once(one)
                assert caught.value.refusal.code is StreamingCode.INNER
            assert it.logs.states(one) == {"committed" if applies else "open"}
            await check_as_stored(it, store)
            assert isinstance(await it.commit(it.logs.stage(2, 1)), BatchCommitted)

    run_seeded(1, main)


def test_a_store_that_stays_silent_holds_up_the_other_commits_for_a_bounded_time() -> None:
    async def main() -> None:
        store = LosingRecords(1, 0.0, applies=True)
        it = cluster(CommitFaults(), store=store)
        async with it.system:
            get, answers = store.get, anyio.Event()

            async def late(key: str) -> MetaEntry | None:
                await answers.wait()
                return await get(key)

            store.get = late  # type: ignore[method-assign]
            began_s = anyio.current_time()
            with pytest.raises(Refused, match="no answer within 5 s") as caught:
                await it.once(it.logs.stage(1))
            assert caught.value.refusal.code is StreamingCode.UNKNOWN
            assert isinstance(await it.once(it.logs.stage(1, app="other")), BatchCommitted)
            assert anyio.current_time() - began_s < 10.0
            answers.set()
            await anyio.sleep(10.0)
            await check_as_stored(it, store)

    run_seeded(1, main)
