"""What `tidemark collection purge` prints: how far each vchannel is purged."""

from dataclasses import asdict, dataclass

from broker.cli.session import with_client
from broker.cli.show.output import print_json, show_fitted
from broker.cli.show.tables import Column
from broker.client import Client
from broker.client.cluster.space_calls import Purged

NOW = "now"


@dataclass(frozen=True, slots=True)
class WantedPurge:
    """What was asked for. `to`: a tick, a time or `now`; "": `before_id` counts."""

    name: str
    to: str
    before_id: int | None
    database: str


def purge_collection(server: str, wanted: WantedPurge, *, as_json: bool) -> None:
    """WantedPurge the collection, and print how far."""

    async def purge(client: Client) -> list[Purged]:
        if not wanted.to:
            return await client.purge(
                wanted.name, before_id=wanted.before_id, database=wanted.database
            )
        upto: int | str = int(wanted.to) if wanted.to.isdecimal() else wanted.to
        if upto == NOW:
            found = await client.collections.get(wanted.name, database=wanted.database)
            upto = (await client.cut(found.vchannels)).tick
        return await client.purge(wanted.name, upto=upto, database=wanted.database)

    done = with_client(server, purge)
    if as_json:
        return print_json([asdict(it) for it in done])
    return show_fitted(
        [
            Column("vchannel", [it.vchannel for it in done]),
            Column("purged up to tick", [str(it.upto) for it in done]),
            Column("next id", [str(it.next_id) for it in done]),
        ]
    )
