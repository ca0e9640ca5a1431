"""Who changes definitions during a storm: collections of each form, their partitions and aliases.

Few names, so that changes of one name wait for each other, and many must be refused.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypedDict
from uuid import uuid4

import anyio
import pyarrow as pa
from anyio.abc import TaskGroup

from broker.client import Client, InvalidArgument, OutcomeUnknown, TidemarkError
from broker.client.errors import AlreadyExists, UnknownDefinition
from broker.codec.milvus_schemas import table_schema, user_schema
from broker.model.master.fields import Field, FieldType
from tests.chaos.storm.ddl_history import About, Request, Told
from tests.chaos.storm.recorder import NeverEnded, Recorder

DDL_S = 20.0
DEFINERS = 6
NAMES = ("ships", "ports")
PAUSE_S = 0.02
REFUSALS = (AlreadyExists, InvalidArgument, UnknownDefinition)
"""What promises that nothing changed. The client makes everything else OutcomeUnknown, at last."""
FAILURES = (TidemarkError, NeverEnded)
ARROW = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
FIELDS = (
    Field(100, "id", FieldType.INT64, primary=True),
    Field(101, "vector", FieldType.FLOAT_VECTOR, (("dim", "4"),)),
)


class Options(TypedDict):
    """Of every change."""

    request_id: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """One change to ask for; `call` returns an id, 0 for none, and the tick."""

    about: About
    call: Callable[[Options], Awaitable[tuple[int, int]]]


@dataclass(slots=True)
class Definitions:
    """`enough` lets every worker end after what it is at; so does the `count`-th change."""

    log: Client
    recorder: Recorder
    seed: int
    count: int | None = None
    pause_s: float = PAUSE_S
    enough: bool = False
    asked: int = 0

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for number in range(DEFINERS):
            tasks.start_soon(self._again, number)

    async def _again(self, worker: int) -> None:
        chosen = random.Random(f"{self.seed} definitions {worker}")
        while not self.enough:
            if self.asked == self.count:
                return
            self.asked += 1
            await self._one(self._wanted(chosen))
            await anyio.sleep(self.pause_s * chosen.uniform(0.0, 2.0))

    async def _one(self, wanted: Wanted) -> None:
        """Asked for again under the same id when nobody knows, as a program would."""
        began_s, told, answer, cause = anyio.current_time(), Told.DONE, (0, 0), ""
        options = Options(request_id=uuid4().hex, deadline_s=DDL_S)

        async def ask() -> tuple[int, int]:
            return await wanted.call(options)

        try:
            try:
                answer = await self.recorder.call("definition", DDL_S, ask)
            except OutcomeUnknown:
                answer = await self.recorder.call("definition again", DDL_S, ask)
        except FAILURES as error:
            told = Told.REFUSED if isinstance(error, REFUSALS) else Told.OPEN
            cause = f"{type(error).__name__}: {error}"
        done = Request(wanted.about, began_s, anyio.current_time(), told, *answer, cause)
        self.recorder.history.ddl.requests.append(done)

    def _wanted(self, chosen: random.Random) -> Wanted:
        name, alias = chosen.choice(NAMES), chosen.choice(("fleet", "harbour"))
        partition = chosen.choice(("north", "south"))
        sort = chosen.random()
        if sort < 0.25:
            return self._create(chosen, name)
        if sort < 0.35:
            return self._plain("RemoveCollection", (name,))
        if sort < 0.6:
            return self._plain("AddPartition", (name, partition))
        if sort < 0.8:
            return self._plain("RemovePartition", (name, partition))
        if sort < 0.92:
            return self._alias(name, alias, alter=chosen.random() < 0.5)
        return self._plain("RemoveAlias", (alias,))

    def _create(self, chosen: random.Random, name: str) -> Wanted:
        """In Arrow's form, in Milvus's, or without a schema."""
        form, shards = chosen.choice(("arrow", "milvus", "plain")), chosen.randint(1, 3)
        fields = user_schema(table_schema(name, FIELDS).milvus) if form == "milvus" else b""
        schema = ARROW if form == "arrow" else None

        async def call(options: Options) -> tuple[int, int]:
            made = await self.log.master.create_collection(
                name, shards=shards, schema=schema, milvus_schema=fields, **options
            )
            return made.id, made.created_tick

        return Wanted(About("AddCollection", (name,)), call)

    def _alias(self, name: str, alias: str, *, alter: bool) -> Wanted:
        async def call(options: Options) -> tuple[int, int]:
            made = await self.log.master.create_alias(name, alias, alter=alter, **options)
            return 0, made.tick

        return Wanted(About("PointAlias", (name, alias)), call)

    def _plain(self, sort: str, names: tuple[str, ...]) -> Wanted:
        """A change that needs nothing but its names."""
        master = self.log.master
        calls = {
            "RemoveCollection": master.drop_collection,
            "AddPartition": master.create_partition,
            "RemovePartition": master.drop_partition,
            "RemoveAlias": master.drop_alias,
        }

        async def call(options: Options) -> tuple[int, int]:
            made = await calls[sort](*names, **options)  # type: ignore[operator]
            return made.id if sort == "AddPartition" else 0, made.tick

        return Wanted(About(sort, names), call)
