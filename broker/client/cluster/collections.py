"""Creates, finds, lists and drops collections: names for sets of vchannels."""

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final, Unpack

from broker.client.cluster.kept_limits import (
    CleanupOptions,
    cleanup_differences,
    compaction_from,
    options_on_wire,
)
from broker.client.cluster.look_up import NameLookup
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    ChannelNotExist,
    InvalidArgument,
    NoSuchCollection,
    NotOffered,
    UnknownDefinition,
)
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, VChannelName
from broker.model.retention.policy import Retention
from schemas.arrow.columns import (
    Misfit,
    decode_schema,
    encode_schema,
    fitting_width,
    not_null_differences,
)
from schemas.arrow.ipc import BadArrow
from schemas.generated.tidemark import v1

if TYPE_CHECKING:
    import pyarrow as pa

PAGE: Final = 1000
"""Collections of one answer."""


class Collections:
    """`log.collections`. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, owners: Owners, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.Collections", deadline_s=deadline_s)
        lookup = NameLookup(self._calls, self.get, owners, deadline_s=deadline_s)
        self.targets = Targets(lookup.shards, connection.lifetime, deadline_s=deadline_s)
        """Resolves names; knows which collections this client has dropped."""

    async def create(
        self,
        name: str,
        *,
        shards: int = 1,
        schema: "pa.Schema | None" = None,
        exist_ok: bool = False,
        database: str = "",
        **options: Unpack[CleanupOptions],
    ) -> Collection:
        """Create a collection with one vchannel for each shard, on the least loaded pchannels.

        `database` "" is the default one, in every call; in another one `log.append` and `log.read`
        take the vchannels of the collection, not its name.

        `retention_ms`, `retention_bytes`, `cleanup`, `compaction_lag_ms` and `tombstone_ms`: what
        each vchannel keeps, see `alter`.

        With a `schema` the collection takes Arrow rows of these columns: see `Client.append_arrow`.
        Raises AlreadyExists when the name is taken; with `exist_ok` only when that collection has
        another number of shards or other columns, which the error names. Columns of an earlier
        version of its schema are no difference, nor is a limit that is not named. Raises
        InvalidArgument for a name or a limit that is not allowed, and for column types that a
        collection cannot have; Unrecoverable when the broker has no pyarrow.
        """
        request = v1.CreateCollectionRequest(
            name=name,
            shards=shards,
            return_existing=True,
            database=database,
            **options_on_wire(options),
        )
        if schema is not None:
            request.arrow_schema = _encoded(schema)
        answer = await self._calls.ask("Create", request, v1.Collection)
        found = _collection(answer)
        others = cleanup_differences(found, options)
        if not answer.existed:
            if others:
                raise NotOffered(
                    f"collection {name!r} is created, but the server is of an earlier release"
                    " and keeps everything: it has no retention or compaction of collections;"
                    " upgrade it"
                )
            return found
        if not exist_ok:
            raise AlreadyExists(
                f"collection {name!r} exists already; drop it, choose a new name, or accept one of"
                " the same definition (exist_ok, --if-not-exists)"
            )
        if differences := [*_differences(found, shards, schema), *others]:
            raise AlreadyExists(
                f"collection {name!r} exists already, and is another: {'; '.join(differences)}"
            )
        return found

    async def add_columns(
        self, name: str, columns: "pa.Schema", *, database: str = ""
    ) -> Collection:
        """Add nullable columns at the end of a collection's schema: its next version.

        Older rows have null in these columns, and writers of older versions may continue. Columns
        that the collection has already, with the same type, are skipped, so the call may be
        repeated. Raises NoSuchCollection; InvalidArgument for a collection without a schema, for
        a column that is not nullable, and for one that exists with another type.
        """
        request = v1.AddColumnsRequest(
            name=name, arrow_columns=_encoded(columns), database=database
        )
        try:
            changed = await self._calls.ask("AddColumns", request, v1.Collection)
        except ChannelNotExist as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(changed)

    async def alter(
        self, name: str, *, database: str = "", **options: Unpack[CleanupOptions]
    ) -> Collection:
        """Change what each vchannel of a collection keeps.

            await log.collections.alter("flights", retention_ms=7 * 86_400_000)

        `retention_ms`: messages that are older are removed, 1,000 to a hundred years;
        `retention_bytes`: the oldest ones are removed while newer ones have as many bytes, 65,536
        to 2**60; -1: no limit. In force within 2 s. What is removed is gone as by `log.purge`, but
        messages that open readers, groups, cursors and transactions need stay until
        `hold_bytes_max` is reached.

            await log.collections.alter("prices", cleanup="compact", tombstone_ms=3_600_000)

        `cleanup="compact"`: in the background all but the newest message of each key is removed;
        "delete": only what retention removes. A message with a key and an empty payload is a
        tombstone: it deletes the key, and is removed `tombstone_ms` after what it deletes is gone
        (a day, unless told otherwise). What is younger than `compaction_lag_ms` (0) is left alone.
        Messages without a key stay. A collection with a schema cannot be compacted: rows have no
        keys.

        Raises NoSuchCollection; InvalidArgument for another limit, 0 among them, and for none.
        """
        wanted = options_on_wire(options)
        request = v1.AlterCollectionRequest(name=name, database=database, **wanted)
        try:
            altered = _collection(await self._calls.ask("Alter", request, v1.Collection))
        except ChannelNotExist as error:
            raise NoSuchCollection(error.cause, error.code) from None
        if others := cleanup_differences(altered, options):
            raise NotOffered(
                f"the server is of an earlier release and did not change collection {name!r}:"
                f" {'; '.join(others)}; upgrade it"
            )
        return altered

    async def schema(self, name: str) -> "pa.Schema | None":
        """The newest schema of a collection's rows; None for a collection of messages."""
        found = (await self.get(name)).schema
        return None if found is None else decode_schema(found.arrow)

    async def get(self, name: str, *, database: str = "") -> Collection:
        """The collection of this name. Raises NoSuchCollection."""
        request = v1.GetCollectionRequest(name=name, database=database)
        try:
            found = await self._calls.ask("Get", request, v1.Collection)
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(found)

    async def each(self, *, database: str = "") -> AsyncIterator[Collection]:
        """All collections of a database, sorted by name, fetched in pages as they are taken.

        One that is created or dropped meanwhile may be missing. Raises UnknownDefinition for an
        unknown database.
        """
        after, more = "", True
        while more:
            request = v1.ListCollectionsRequest(database=database, after=after, limit=PAGE)
            try:
                page = await self._calls.ask("List", request, v1.ListCollectionsResponse)
            except ChannelNotExist as error:
                raise UnknownDefinition(error.cause, error.code) from None
            for found in page.collections:
                yield _collection(found)
                after = found.name
            more = page.more and bool(page.collections)

    async def list(self, *, database: str = "") -> list[Collection]:
        """All collections of a database, sorted by name; see `each`."""
        return [it async for it in self.each(database=database)]

    async def resolve(self, names: Iterable[str]) -> dict[str, tuple[VChannelName, ...]]:
        """Each name with its vchannels in shard order; a channel is its own only vchannel.

        Raises NoSuchCollection.
        """
        return {name: (await self.targets.resolve(name)).vchannels for name in names}

    async def drop(self, name: str, *, database: str = "") -> None:
        """Forget the collection. Raises NoSuchCollection."""
        request = v1.DropCollectionRequest(name=name, database=database)
        try:
            await self._calls.ask("Drop", request, v1.DropCollectionResponse)
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        if not database:
            # A collection made anew under this name has other vchannels.
            self.targets.forget(name)


def _encoded(schema: "pa.Schema") -> bytes:
    try:
        return encode_schema(schema)
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _differences(found: Collection, shards: int, schema: "pa.Schema | None") -> list[str]:
    """How a collection differs from what was to be created."""
    differences: list[str] = []
    if len(found.vchannels) != shards:
        differences.append(f"it has {len(found.vchannels)} shards, not {shards}")
    if found.schema is None and schema is not None:
        differences.append("it has no schema")
    if found.schema is not None and schema is None:
        names = decode_schema(found.schema.arrow).names
        differences.append(f"it has a schema, with columns {', '.join(names)}")
    if found.schema is not None and schema is not None:
        known = decode_schema(found.schema.arrow)
        try:
            fitting_width(known, found.schema.widths, schema)
        except Misfit as error:
            differences.append(str(error))
        differences += not_null_differences(known, schema)
    return differences


def _collection(found: v1.Collection) -> Collection:
    schema = found.schema
    return Collection(
        name=found.name,
        id=CollectionId(found.id),
        vchannels=tuple(VChannelName(it) for it in found.vchannels),
        created_ms=found.created_ms,
        database=found.database,
        schema=None if schema is None else RowSchema(schema.arrow, tuple(schema.widths)),
        retention=Retention(bytes_max=found.retention_bytes, age_ms_max=found.retention_ms),
        compaction=compaction_from(found.compaction),
    )
