"""Batches of the native protocol on a running node, on a vchannel whose collection is announced."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.effect import CollectionCreated, Inserted, SegmentCreated
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import MessageType
from tests.broker.node.rows_of_collections import (
    COLLECTION,
    A,
    batch,
    create_collection,
    effects_in,
)
from tests.broker.node.world import PCHANNEL, appended, running_node


def test_a_batch_without_a_header_goes_to_the_default_partition_as_one_insert() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            elsewhere = replace(batch(), vchannel=f"{PCHANNEL}_8v0")
            appended(await world.append(create_collection(), batch(), elsewhere))
            created, opened, rows, plain = await effects_in(world)
            assert isinstance(opened, SegmentCreated)
            assert isinstance(created, CollectionCreated)
            assert rows == Inserted(COLLECTION, A, opened.segment_id, 2, 9, None)
            assert isinstance(plain, Inserted)
            assert plain.rows == 0  # no collection, no header

    run_seeded(10, scenario)


def test_a_batch_of_another_type_is_refused_for_a_collection() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection()))
            (refused,) = await world.append(replace(batch(), type=MessageType.MANUAL_FLUSH))
            assert isinstance(refused, Refusal)
            assert refused.code is StreamingCode.UNRECOVERABLE
            assert "one by one" in refused.cause

    run_seeded(11, scenario)
