"""Who gets through the turnstile and when, over any sequence of comings and goings."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.cut_lock_rules import CutLockRules, LockGrants, SharedHolder

WAIT_S, LEASE_S = 3.0, 2.0
P, Q = "by-dev-dml_0", "by-dev-dml_1"
V = (f"{P}_1v0", f"{Q}_1v0", f"{P}_2v0")
SETS = (V[:2], V[1:], V, V[:1], (V[0], V[2]))
TARGETS = (V[:2], (V[0], V[2]), V[:1], (P,), (P, Q), (V[2], Q))
PARTY = "party"

steps = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 9), st.sampled_from(SETS)),
        st.tuples(st.just("leave"), st.integers(0, 9), st.none()),
        st.tuples(st.just("hold"), st.just(0), st.sampled_from(TARGETS)),
        st.tuples(st.just("release"), st.integers(0, 5), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 25), st.none()),
        st.tuples(st.just("restart"), st.integers(0, 9), st.none()),
    ),
    max_size=60,
)


def common(vchannels: tuple[str, ...], targets: tuple[str, ...]) -> bool:
    return sum(any(it.startswith(target) for target in targets) for it in vchannels) >= 2


@dataclass
class World:
    """The turnstile beside a list of who is where, and the promises that are to be kept."""

    turnstile: CutLockRules = field(default_factory=lambda: CutLockRules([], WAIT_S, LEASE_S))
    now_s: float = 0.0
    vchannels: dict[SharedHolder, tuple[str, ...]] = field(default_factory=dict)
    came_s: dict[SharedHolder, float] = field(default_factory=dict)
    inside: set[SharedHolder] = field(default_factory=set)
    targets: dict[int, tuple[str, ...]] = field(default_factory=dict)
    held_s: dict[int, float] = field(default_factory=dict)
    granted: set[int] = field(default_factory=set)

    def turn(self) -> None:
        turn = self.turnstile.turn(self.now_s)
        for id_ in turn.in_vain:
            self.check_in_vain(id_, turn)
        for id_ in [it for it in self.granted if self.held_s[it] + LEASE_S <= self.now_s]:
            self.granted.discard(id_)
        for entrant in turn.admitted:
            self.admit(entrant)
        for id_ in turn.granted:
            names = [it for it in self.inside if common(self.vchannels[it], self.targets[id_])]
            assert not names, "nothing under way is split"
            self.granted.add(id_)
            self.held_s[id_] = self.now_s
        assert self.turnstile.inside == len(self.inside)
        assert self.turnstile.waiting == len(self.came_s)

    def admit(self, entrant: SharedHolder) -> None:
        concerned = [it for it in self.granted if common(self.vchannels[entrant], self.targets[it])]
        assert not concerned, "nobody gets in while a cut is taken"
        assert self.now_s - self.came_s.pop(entrant) <= WAIT_S + LEASE_S + 1e-9
        self.inside.add(entrant)
        assert self.turnstile.is_inside(entrant)

    def check_in_vain(self, id_: int, turn: LockGrants) -> None:
        assert self.held_s.pop(id_) + WAIT_S <= self.now_s
        assert turn.in_vain[id_]

    def enter(self, entrant: SharedHolder, vchannels: tuple[str, ...]) -> None:
        if entrant not in self.inside and entrant not in self.came_s:
            self.vchannels[entrant] = vchannels
            self.came_s[entrant] = self.now_s
        self.turnstile.enter(entrant, vchannels)

    def leave(self, entrant: SharedHolder) -> None:
        self.inside.discard(entrant)
        self.came_s.pop(entrant, None)
        self.turnstile.leave(entrant)

    def hold(self, targets: tuple[str, ...]) -> None:
        id_ = self.turnstile.hold(targets, self.now_s)
        self.targets[id_], self.held_s[id_] = targets, self.now_s

    def release(self, number: int) -> None:
        id_ = sorted(self.targets)[number % len(self.targets)] if self.targets else 0
        lasted = self.turnstile.release(id_)
        assert lasted == (id_ in self.granted)
        self.granted.discard(id_)
        self.targets.pop(id_, None)

    def restart(self, number: int) -> None:
        """The party starts anew, and one of those inside has landed meanwhile."""
        still = {it: self.vchannels[it] for it in self.inside if it.name != str(number)}
        new = {f"new {number}": SETS[0]}
        self.turnstile.under_way(PARTY, {it.name: names for it, names in still.items()} | new)
        self.inside = set(still)
        self.came_s.clear()

    def wait(self, seconds: float) -> None:
        """As the actor does it: there is a turn whenever a hold ends."""
        until_s = self.now_s + seconds
        while (next_s := self.turnstile.next_s()) is not None and next_s <= until_s:
            self.now_s = next_s
            self.turn()
        self.now_s = until_s


@given(steps)
def test_nothing_is_split_nobody_waits_long_and_all_get_through(
    happened: list[tuple[str, int, tuple[str, ...]]],
) -> None:
    world = World()
    for what, number, names in happened:
        entrant = SharedHolder(PARTY, str(number))
        match what:
            case "enter":
                world.enter(entrant, names)
            case "leave":
                world.leave(entrant)
            case "hold":
                world.hold(names)
            case "release":
                world.release(number)
            case "restart":
                world.restart(number)
            case _:
                world.wait(number / 5)
        world.turn()
    world.wait(WAIT_S + LEASE_S)
    world.turn()
    assert (world.came_s, world.turnstile.holds) == ({}, 0)


def held(turnstile: CutLockRules, targets: tuple[str, ...], now_s: float = 0.0) -> int:
    id_ = turnstile.hold(targets, now_s)
    assert id_ in turnstile.turn(now_s).granted
    return id_


def test_only_what_has_two_vchannels_in_common_waits() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    held(turnstile, V[:2])
    one, both = SharedHolder(PARTY, "one"), SharedHolder(PARTY, "both")
    turnstile.enter(one, V[1:])
    turnstile.enter(both, V)
    assert turnstile.turn(1.0).admitted == (one,)
    assert turnstile.turn(LEASE_S).admitted == (both,)
    assert turnstile.hold((V[1], V[2]), LEASE_S) not in turnstile.turn(LEASE_S).granted
    assert turnstile.hold(V[:1], LEASE_S) in turnstile.turn(LEASE_S).granted


def test_several_cuts_share_the_gate_and_later_ones_let_go_first_whoever_was_there() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    first = held(turnstile, V[:2])
    second = held(turnstile, V)
    early, late = SharedHolder(PARTY, "early"), SharedHolder(PARTY, "late")
    turnstile.enter(early, V)
    third = turnstile.hold(V, 0.5)
    turnstile.enter(late, V)
    assert turnstile.turn(0.5) == LockGrants((), (), {})
    assert turnstile.release(first)
    assert turnstile.turn(0.6) == LockGrants((), (), {})
    assert turnstile.release(second)
    assert turnstile.turn(0.7) == LockGrants((early,), (), {})
    turnstile.leave(early)
    assert turnstile.turn(0.8) == LockGrants((), (third,), {})
    assert turnstile.release(third)
    assert turnstile.turn(0.9) == LockGrants((late,), (), {})
    assert not turnstile.release(third)


def test_a_cut_does_not_wait_for_who_waits_at_another_one_with_nothing_in_common() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    held(turnstile, V[:2])
    turnstile.enter(SharedHolder(PARTY, "there"), V[:2])
    held(turnstile, V[1:], 0.5)
    assert turnstile.waiting == 1


def test_after_a_restart_no_hold_has_the_id_of_an_earlier_one() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    earlier = turnstile.hold(V, 0.0)
    later = CutLockRules([], WAIT_S, LEASE_S)
    later.number_from(earlier)
    assert later.hold(V, 0.0) > earlier
    assert not later.release(earlier)


def test_what_takes_too_long_is_named_and_the_gate_opens() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    slow, new = SharedHolder(PARTY, "slow"), SharedHolder(PARTY, "new")
    turnstile.enter(slow, V)
    turnstile.turn(0.0)
    hold = turnstile.hold(V, 0.0)
    turnstile.enter(new, V)
    assert turnstile.turn(1.0) == LockGrants((), (), {})
    assert turnstile.turn(WAIT_S) == LockGrants((new,), (), {hold: (slow,)})


def test_after_a_start_no_cut_is_taken_before_every_party_has_told_what_is_under_way() -> None:
    turnstile = CutLockRules(["a", "b"], WAIT_S, LEASE_S)
    wide, narrow = turnstile.hold(V, 0.0), turnstile.hold(V[:1], 0.0)
    assert turnstile.turn(0.0) == LockGrants((), (), {})
    turnstile.under_way("a", {"7": V})
    turnstile.under_way("b", {})
    assert turnstile.turn(1.0) == LockGrants((), (narrow,), {})
    turnstile.enter(SharedHolder("a", "7"), V)
    turnstile.leave(SharedHolder("a", "7"))
    assert turnstile.turn(2.0).granted == (wide,)
    vain = CutLockRules(["a"], WAIT_S, LEASE_S)
    unheard = vain.hold(V, 0.0)
    assert vain.turn(WAIT_S) == LockGrants((), (), {unheard: ()})


def test_a_party_that_starts_anew_alone_keeps_inside_what_was_inside_and_is_not_done() -> None:
    turnstile = CutLockRules([], WAIT_S, LEASE_S)
    other, done, going = SharedHolder("b", "7"), SharedHolder("a", "7"), SharedHolder("a", "8")
    for entrant in (other, done, going):
        turnstile.enter(entrant, V)
    turnstile.turn(0.0)
    hold = turnstile.hold(V, 0.0)
    turnstile.enter(SharedHolder("a", "9"), V)
    turnstile.under_way("a", {"8": V, "9": V})
    assert [turnstile.is_inside(it) for it in (other, done, going)] == [True, False, True]
    assert turnstile.waiting == 0, "who waited has appended nothing, and enters again"
    turnstile.leave(other)
    turnstile.leave(going)
    assert turnstile.turn(1.0).granted == (hold,)
