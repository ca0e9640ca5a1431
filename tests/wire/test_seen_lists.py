"""Lists show what the caller sees, and nothing of them tells that there is more."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from schemas.generated.tidemark import v1
from schemas.properties.keys import STAGE, StageKey
from schemas.properties.txn_context import TxnContext, begin_header
from schemas.wire import Produced
from tests.wire.controlled import ADMIN, Controlled, controlled
from tests.wire.peer import Peer, connected, ended
from tests.wire.test_access import producing
from tests.wire.test_transactions import BEGIN, Txn

ANN = ("consume:collection:trains*", "consume:collection:nowhere/*")


class Lists:
    """What one user is shown."""

    def __init__(self, here: Controlled, peer: Peer, user: str) -> None:
        self._peer = peer
        self._proof = here.proof(user)

    async def ask(self, call: str, request: object) -> bytes:
        asked = bytes(request)  # type: ignore[call-overload]
        return bytes(await self._peer.call(f"/tidemark.v1.{call}", asked, self._proof))

    async def collections(self, database: str = "", limit: int = 0, after: str = "") -> list[str]:
        asked = v1.ListCollectionsRequest(database=database, limit=limit, after=after)
        answer = v1.ListCollectionsResponse.parse(await self.ask("Collections/List", asked))
        return [it.name for it in answer.collections]

    async def shown(self, database: str = "") -> list[str]:
        asked = v1.ShowCollectionsRequest(db_name=database)
        answer = await self.ask("Master/ShowCollections", asked)
        return list(v1.ShowCollectionsResponse.parse(answer).collection_names)

    async def databases(self) -> list[str]:
        answer = await self.ask("Master/ListDatabases", v1.ListDatabasesRequest())
        return list(v1.ListDatabasesResponse.parse(answer).db_names)

    async def commits(self) -> list[str]:
        answer = await self.ask("Commits/List", v1.ListCommitsRequest())
        return [it.app for it in v1.ListCommitsResponse.parse(answer).apps]

    async def cursors(self) -> list[str]:
        answer = await self.ask("TimeSync/ListCursors", v1.ListCursorsRequest())
        return [it.name for it in v1.ListCursorsResponse.parse(answer).cursors]

    async def groups(self, vchannel: str, size: int = 0) -> list[str]:
        found, page = [], ""
        while True:
            asked = v1.ListGroupsRequest(vchannels=[vchannel], page_size=size, page=page)
            answer = v1.ListGroupsResponse.parse(await self.ask("Groups/List", asked))
            found += [it.group for it in answer.groups]
            page = answer.next_page
            assert "hidden" not in page
            if not page:
                return found

    async def aliases(self, collection: str = "", database: str = "") -> list[tuple[str, str]]:
        asked = v1.ShowAliasesRequest(collection_name=collection, db_name=database)
        answer = v1.ShowAliasesResponse.parse(await self.ask("Master/ShowAliases", asked))
        return list(zip(answer.aliases, answer.collection_names, strict=True))


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Controlled, Peer, Lists, Lists]]:
    """Two collections, `trains` and `hidden`; ann consumes trains. The lists of ann and of all."""
    async with controlled() as here, connected(here.broker) as peer:
        await here.add("ann", *ANN)
        every = Lists(here, peer, ADMIN)
        for name in ("hidden", "trains"):
            asked = v1.CreateCollectionRequest(name=name, shards=1)
            await every.ask("Collections/Create", asked)
        yield here, peer, Lists(here, peer, "ann"), every


async def vchannel(lists: Lists, name: str) -> str:
    answer = await lists.ask("Collections/Get", v1.GetCollectionRequest(name=name))
    return v1.Collection.parse(answer).vchannels[0]


async def test_who_consumes_trains_sees_trains_and_nothing_else() -> None:
    async with world() as (here, peer, ann, every):
        await here.add("eve")
        eve = Lists(here, peer, "eve")
        assert (await every.collections(), await every.shown()) == (["hidden", "trains"],) * 2
        assert (await ann.collections(), await ann.shown()) == (["trains"], ["trains"])
        assert (await eve.collections(), await eve.shown()) == ([], [])


async def test_who_observes_the_cluster_sees_everything() -> None:
    async with world() as (here, peer, _, _):
        await here.add("eve", "observe:cluster:*")
        assert await Lists(here, peer, "eve").collections() == ["hidden", "trains"]


async def test_pages_are_full_of_what_is_seen() -> None:
    async with world() as (_, _, ann, every):
        for name in ("trains2", "a", "trains1", "tz"):
            await every.ask("Collections/Create", v1.CreateCollectionRequest(name=name, shards=1))
        assert await ann.collections(limit=2) == ["trains", "trains1"]
        assert await ann.collections(limit=2, after="trains1") == ["trains2"]


async def test_a_database_without_anything_to_see_is_as_one_that_is_not_there() -> None:
    async with world() as (_, _, ann, every):
        await every.ask("Master/CreateDatabase", v1.CreateDatabaseRequest(db_name="sales"))
        asked = v1.CreateCollectionRequest(name="hidden", shards=1, database="sales")
        await every.ask("Collections/Create", asked)
        for database in ("sales", "absent", "nowhere"):
            assert await ann.collections(database) == await ann.shown(database) == []
            assert await ann.aliases(database=database) == []
        with pytest.raises(grpc.aio.AioRpcError):
            await every.collections("absent")


async def test_cursors_are_shown_to_who_may_use_them() -> None:
    async with world() as (here, _, ann, every):
        await here.add("ann", *ANN, "consume:cursor:mine*")
        channel = await vchannel(every, "trains")
        for name in ("mine1", "hidden"):
            positions = [v1.CursorPosition(channel=channel)]
            asked = v1.OpenCursorRequest(name=name, positions=positions)
            await every.ask("TimeSync/OpenCursor", asked)
        assert (await ann.cursors(), await every.cursors()) == (["mine1"], ["hidden", "mine1"])


async def test_groups_of_a_seen_collection_are_shown_to_who_may_use_them() -> None:
    async with world() as (here, _, ann, every):
        await here.add("ann", *ANN, "group:group:mine*")
        channel = await vchannel(every, "trains")
        names = ("hidden1", "hidden2", "mine1", "hidden3", "mine2", "zz_hidden")
        for name in names:
            await every.ask("Groups/Create", v1.CreateGroupRequest(vchannel=channel, group=name))
        for size in (0, 1, 2):
            assert await ann.groups(channel, size) == ["mine1", "mine2"]
        assert await every.groups(channel, 100) == sorted(names)


async def test_an_alias_is_a_name_of_its_own() -> None:
    async with world() as (_, _, ann, every):
        for alias, of in (("trains_now", "trains"), ("secret", "trains"), ("trains_x", "hidden")):
            asked = v1.CreateAliasRequest(collection_name=of, alias=alias)
            await every.ask("Master/CreateAlias", asked)
        assert await ann.aliases() == [("trains_now", "trains")]
        assert await ann.aliases("trains") == [("trains_now", "trains")]
        assert len(await every.aliases()) == 3
        by_name = v1.DescribeCollectionRequest(collection_name="trains")
        answer = await ann.ask("Master/DescribeCollection", by_name)
        assert list(v1.DescribeCollectionResponse.parse(answer).aliases) == ["trains_now"]


async def test_an_id_is_refused_without_the_name_behind_it() -> None:
    async with world() as (_, _, ann, every):
        asked = v1.GetCollectionRequest(name="hidden")
        id = v1.Collection.parse(await every.ask("Collections/Get", asked)).id
        causes = []
        for one in (id, id + 1000):
            by_id = v1.DescribeCollectionRequest(collection_id=one)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ann.ask("Master/DescribeCollection", by_id)
            error = ended(refused.value).error
            assert error is not None
            causes.append(error.cause.replace(str(one), "ID"))
        assert causes[0] == causes[1]
        assert "collection '#ID'" in causes[0]


async def test_a_new_grant_shows_in_the_next_list() -> None:
    async with world() as (here, _, ann, _):
        here.follow()
        assert await ann.collections() == ["trains"]
        await here.store("ann", "consume:collection:hidden")
        assert await ann.collections() == ["hidden"]


async def test_databases_are_shown_to_who_sees_a_collection_of_them() -> None:
    async with world() as (here, peer, ann, every):
        for database in ("empty", "sales", "secret"):
            asked = v1.CreateDatabaseRequest(db_name=database)
            await every.ask("Master/CreateDatabase", asked)
        for database in ("sales", "secret"):
            made = v1.CreateCollectionRequest(name="orders", shards=1, database=database)
            await every.ask("Collections/Create", made)
        assert await every.databases() == ["default", "empty", "sales", "secret"]
        assert await ann.databases() == ["default"]
        await here.add("eve", "produce:collection:sales/*", "consume:collection:empty/*")
        assert await Lists(here, peer, "eve").databases() == ["default", "sales"]


async def test_commits_are_shown_to_who_sees_a_vchannel_of_them() -> None:
    async with world() as (here, peer, ann, every):
        for name in ("hidden", "trains"):
            txn = Txn(await producing(peer, here.proof(ADMIN)), await vchannel(every, name))
            tags = {STAGE.key: STAGE.encode(StageKey(f"of_{name}", 1, 0, 0))}
            begin = b64encode(begin_header(0)).decode()
            begun = await txn.say(BEGIN, b"", **tags, _h=begin)
            assert isinstance(begun, Produced)
            named = v1.StagedTxn(
                vchannel=txn.vchannel, txn_id=TxnContext.decode(begun.txn_context).txn_id
            )
            asked = v1.CommitBatchRequest(app=f"of_{name}", batch=1, txns=[named])
            await every.ask("Commits/Commit", asked)
        assert await every.commits() == ["of_hidden", "of_trains"]
        assert await ann.commits() == ["of_trains"]
        await here.add("eve")
        assert await Lists(here, peer, "eve").commits() == []
