"""The record in etcd that says whose store a prefix is, and which etcd cluster it was written in.

It refuses a second cluster on the prefix, and an etcd that was restored from a backup or copied.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from broker.etcd.etcd_errors import StoreWentBack
from broker.etcd.place import EtcdPlace
from broker.ports.meta import MetaError, UnknownSchema

SCHEMA_VERSION: Final = 1


class StoreOwned(MetaError):
    """The prefix is the store of another broker, which has another data folder."""


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """`owner`: a token that the data folder of the broker has, too. `etcd`: the cluster's ID."""

    owner: str
    etcd: int
    revision: int

    def encoded(self) -> bytes:
        """The record as it is stored."""
        fields = {
            "schema": SCHEMA_VERSION,
            "owner": self.owner,
            "etcd": f"{self.etcd:x}",
            "revision": self.revision,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, value: bytes, place: EtcdPlace) -> Self:
        """Raises UnknownSchema for a later version's; MetaError when it is none."""
        try:
            fields: Any = json.loads(value)
            version = int(fields["schema"])
            if version == SCHEMA_VERSION:
                return cls(str(fields["owner"]), int(fields["etcd"], 16), int(fields["revision"]))
        except (ValueError, KeyError, TypeError) as error:
            cause = f"{place}: {place.prefix}/tidemark/store is not Tidemark's: {error!r}"
            raise MetaError(f"{cause}; name another prefix") from error
        raise UnknownSchema(str(place), version, SCHEMA_VERSION)

    def judge(self, now: "StoreRecord", place: EtcdPlace) -> None:
        """Raise unless a store with this record may be opened by who would write `now`."""
        if self.owner != now.owner:
            raise StoreOwned(
                f"{place} is the metadata of a broker with another data folder; name another"
                " prefix, or start with that --data-dir"
            )
        if self.etcd != now.etcd:
            raise StoreWentBack(
                f"{place} was written in etcd cluster {self.etcd:x}, and this is {now.etcd:x}: it"
                " was restored from a backup, or copied, and may lack what was written since;"
                f" {_accept(place)}"
            )
        if self.revision > now.revision:
            raise StoreWentBack(
                f"{place} is at revision {now.revision} and was at {self.revision}: it was restored"
                f" from a backup, and what was written since is lost; {_accept(place)}"
            )


def went_back(place: EtcdPlace, revision: int, seen: int) -> StoreWentBack:
    """The error for a store that an earlier process has seen at a higher revision."""
    return StoreWentBack(
        f"{place} is at revision {revision}, and this data folder has seen it at {seen}: it was"
        " restored from a backup, and what was written since is lost; restore a newer one, or, to"
        " go on with the older state, delete metadata.json in the data folder and in etcd the key"
        f" {place.prefix}/tidemark/store"
    )


def _accept(place: EtcdPlace) -> str:
    return (
        "restore a newer backup, or, to go on with this state, delete the key"
        f" {place.prefix}/tidemark/store in etcd"
    )
