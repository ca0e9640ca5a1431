"""Members agree on who owns which vchannel, in whatever order they are told."""

import random
from functools import partial

import pytest

from broker.client.groups.vchannel_shares import Give, VChannelShares


class Cluster:
    """Groups of many vchannels, as far as ownership goes; what they tell arrives later."""

    def __init__(self, rng: random.Random, vchannels: int) -> None:
        self.rng = rng
        self.owner = {f"v{it:02}": "" for it in range(vchannels)}
        self.members: dict[str, VChannelShares] = {}
        self.there: dict[str, list[str]] = {it: [] for it in self.owner}
        self.telling: list[tuple[str, str]] = []
        """Who is to be told about which vchannel; told is what holds then."""
        self.deciding: list[str] = []
        self.moves = 0

    def join(self, name: str) -> None:
        self.members[name] = VChannelShares(name)
        self.members[name].expect(self.owner)
        for vchannel in self.owner:
            self.there[vchannel].append(name)
            if len(self.there[vchannel]) == 1:
                self.owner[vchannel] = name
            self.changed(vchannel)

    def die(self, name: str) -> None:
        del self.members[name]
        self.telling = [it for it in self.telling if it[0] != name]
        for vchannel, there in self.there.items():
            there.remove(name)
            if self.owner[vchannel] == name:
                self.owner[vchannel] = ""
            self.changed(vchannel)

    def changed(self, vchannel: str) -> None:
        self.telling += [(name, vchannel) for name in self.there[vchannel]]

    def calm(self) -> None:
        for _ in range(100_000):
            if not self.telling:
                return
            name, vchannel = self.telling.pop(self.rng.randrange(len(self.telling)))
            shares = self.members[name]

            give = partial(self.give, name, vchannel)
            if shares.told(vchannel, give, list(self.there[vchannel]), self.owner[vchannel]):
                self.deciding.append(name)
            # Behind whatever else was told by then.
            while self.deciding and (not self.telling or self.rng.random() < 0.3):
                decides = self.members.get(self.deciding.pop())
                if decides is not None:
                    decides.decide()
        raise AssertionError("it never ends")

    def give(self, name: str, vchannel: str, to: str) -> None:
        if self.owner[vchannel] in ("", name) and to in self.there[vchannel]:
            self.moves += 1
            self.owner[vchannel] = to
            self.changed(vchannel)

    def shares(self) -> list[int]:
        owners = list(self.owner.values())
        return sorted(owners.count(it) for it in self.members)


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_even_and_only_what_must_move_moves(seed: int) -> None:
    cluster = Cluster(random.Random(seed), 64)
    for number in range(7):
        cluster.join(f"m{number}")
        cluster.calm()
    assert cluster.shares() == [9] * 6 + [10]
    cluster.moves = 0
    cluster.join("m7")
    cluster.calm()
    assert cluster.shares() == [8] * 8
    assert cluster.moves == 8
    cluster.moves = 0
    cluster.die("m3")
    cluster.calm()
    assert cluster.shares() == [9] * 6 + [10]
    assert cluster.moves == 8


@pytest.mark.parametrize("seed", range(20))
def test_members_that_come_and_go_at_once_end_with_even_shares(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(rng, 13)
    for number in range(12):
        cluster.join(f"m{number}")
        if rng.random() < 0.5 and len(cluster.members) > 1:
            cluster.die(rng.choice(sorted(cluster.members)))
    cluster.calm()
    shares = cluster.shares()
    assert sum(shares) == 13
    assert shares[-1] - shares[0] <= 1


def test_nothing_is_given_before_all_is_known_and_what_is_lost_stays() -> None:
    given: list[tuple[str, str]] = []

    def first(to: str) -> None:
        given.append(("v0", to))

    def second(to: str) -> None:
        given.append(("v1", to))

    shares = VChannelShares("ann")

    def told(vchannel: str, give: Give, members: list[str], owner: str) -> None:
        assert shares.told(vchannel, give, members, owner)
        assert not shares.told(vchannel, give, members, owner), "one decision does for both"
        shares.decide()

    shares.expect(["v0", "v1"])
    told("v0", first, ["ann", "bob"], "ann")
    assert given == [], "it may be one of many"
    shares.lost("v0", second)  # of an earlier stream
    told("v1", second, ["ann", "bob"], "ann")
    assert given == [("v1", "bob")]
    told("v1", second, ["ann", "bob", "cid"], "bob")
    shares.lost("v0", first)
    told("v1", second, ["ann", "bob"], "bob")
    told("v0", first, ["ann"], "ann")
    assert shares.owned() == ["v0"]
    assert given == [("v1", "bob")], "and it was not asked for twice"
    told("v1", second, ["ann"], "")
    assert given[1:] == [("v1", "ann")]
