"""The record in etcd that says whose store a prefix is, and which etcd cluster it was written in.

It refuses a second cluster on the prefix, and an etcd that was restored from a backup or copied.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from broker.etcd.etcd_errors import StoreWentBack
from broker.etcd.place import EtcdPlace
from broker.ports.meta import LastingFailure, MetaError, UnknownSchema

SCHEMA_VERSION: Final = 1


class StoreOwned(LastingFailure):
    """The prefix is the store of another broker, or one whose log is elsewhere."""


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """`owner`: a token that the data folders of the broker have, too. `etcd`: the cluster's ID.

    `log`: where the log is, if that is outside of all data folders; "" where nobody has said so.
    """

    owner: str
    etcd: int
    revision: int
    log: str = ""

    def encoded(self) -> bytes:
        """The record as it is stored."""
        fields = {
            "schema": SCHEMA_VERSION,
            "owner": self.owner,
            "etcd": f"{self.etcd:x}",
            "revision": self.revision,
            "log": self.log,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, value: bytes, place: EtcdPlace) -> Self:
        """Raises UnknownSchema for a later version's; MetaError when it is none."""
        try:
            fields: Any = json.loads(value)
            version = int(fields["schema"])
            if version == SCHEMA_VERSION:
                owner, log = str(fields["owner"]), str(fields.get("log", ""))
                return cls(owner, int(fields["etcd"], 16), int(fields["revision"]), log)
        except (ValueError, KeyError, TypeError) as error:
            cause = f"{place}: {place.prefix}/tidemark/store is not Tidemark's: {error!r}"
            raise MetaError(f"{cause}; name another prefix") from error
        raise UnknownSchema(str(place), version, SCHEMA_VERSION)

    def joined(self, log: str, place: EtcdPlace) -> str:
        """The token, for another data folder of the same broker. Raises StoreOwned.

        Nothing of the log lies in a data folder then, so it may have several.
        """
        if self.log == log:
            return self.owner
        there = f"in {self.log}" if self.log else "in its data folder, or has not said where"
        raise StoreOwned(
            f"{place} is the metadata of a broker with another data folder, and its log is {there},"
            f" not in {log}; name another prefix or another --wal, or start a process with this"
            " --wal on its data folder first"
        )

    def judge(self, now: "StoreRecord", place: EtcdPlace) -> None:
        """Raise unless a store with this record may be opened by who would write `now`."""
        if self.owner != now.owner:
            raise StoreOwned(
                f"{place} is the metadata of a broker with another data folder; name another"
                " prefix, or start with that --data-dir"
            )
        if self.log and now.log and self.log != now.log:
            raise StoreOwned(
                f"{place} is the metadata of a broker with its log in {self.log}, not in"
                f" {now.log}; correct --wal or --meta"
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
        f" restored from a backup, and what was written since is lost; {_accept_noted(place)}"
    )


def no_record(place: EtcdPlace) -> StoreWentBack:
    """The error for an etcd without the store that an earlier process of the folder has opened."""
    return StoreWentBack(
        f"{place} has no record of a store, and this data folder has been used with one there:"
        " check the endpoints in --meta; if they are right, etcd was emptied or restored from a"
        " backup: restore a newer one, or, to begin anew, stop all coordinators and nodes, and"
        " delete metadata.json in each data folder"
    )


def lost_beat(place: EtcdPlace, at: int, seen: int) -> str:
    """Why a store is refused whose own revision is high enough, and that of its beat is not."""
    found = f"was last written at revision {at}" if at else "is not there"
    return (
        f"{place.prefix}/tidemark/beat {found} in {place}, and was written at {seen}: etcd was"
        " restored from a backup, as with --bump-revision, or the key was deleted; what was written"
        f" since may be lost; {_accept_noted(place)}"
    )


def _accept_noted(place: EtcdPlace) -> str:
    return (
        "stop all coordinators and nodes; then restore a newer one, or, to go on with the older"
        " state, delete metadata.json in each data folder and in etcd the key"
        f" {place.prefix}/tidemark/store"
    )


def _accept(place: EtcdPlace) -> str:
    return (
        "stop all coordinators and nodes; then restore a newer backup, or, to go on with this"
        f" state, delete the key {place.prefix}/tidemark/store in etcd"
    )
