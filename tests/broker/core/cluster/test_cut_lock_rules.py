"""Who gets through the lock and when, over any sequence of comings and goings."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.cut_lock_rules import CutLockRules, LockChanges, SharedHolder

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
    """The lock beside a list of who is where, and the promises that are to be kept."""

    lock: CutLockRules = field(default_factory=lambda: CutLockRules([], WAIT_S, LEASE_S))
    now_s: float = 0.0
    vchannels: dict[SharedHolder, tuple[str, ...]] = field(default_factory=dict)
    came_s: dict[SharedHolder, float] = field(default_factory=dict)
    inside: set[SharedHolder] = field(default_factory=set)
    targets: dict[int, tuple[str, ...]] = field(default_factory=dict)
    held_s: dict[int, float] = field(default_factory=dict)
    granted: set[int] = field(default_factory=set)

    def advance(self) -> None:
        changes = self.lock.advance(self.now_s)
        for id_ in changes.timed_out:
            self.check_timed_out(id_, changes)
        for id_ in [it for it in self.granted if self.held_s[it] + LEASE_S <= self.now_s]:
            self.granted.discard(id_)
        for entrant in changes.admitted:
            self.admit(entrant)
        for id_ in changes.granted:
            names = [it for it in self.inside if common(self.vchannels[it], self.targets[id_])]
            assert not names, "nothing under way is split"
            self.granted.add(id_)
            self.held_s[id_] = self.now_s
        assert self.lock.inside == len(self.inside)
        assert self.lock.waiting == len(self.came_s)

    def admit(self, entrant: SharedHolder) -> None:
        concerned = [it for it in self.granted if common(self.vchannels[entrant], self.targets[it])]
        assert not concerned, "nobody gets in while a cut is taken"
        assert self.now_s - self.came_s.pop(entrant) <= WAIT_S + LEASE_S + 1e-9
        self.inside.add(entrant)
        assert self.lock.is_inside(entrant)

    def check_timed_out(self, id_: int, changes: LockChanges) -> None:
        assert self.held_s.pop(id_) + WAIT_S <= self.now_s
        assert changes.timed_out[id_]

    def enter(self, entrant: SharedHolder, vchannels: tuple[str, ...]) -> None:
        if entrant not in self.inside and entrant not in self.came_s:
            self.vchannels[entrant] = vchannels
            self.came_s[entrant] = self.now_s
        self.lock.enter(entrant, vchannels)

    def leave(self, entrant: SharedHolder) -> None:
        self.inside.discard(entrant)
        self.came_s.pop(entrant, None)
        self.lock.leave(entrant)

    def hold(self, targets: tuple[str, ...]) -> None:
        id_ = self.lock.hold(targets, self.now_s)
        self.targets[id_], self.held_s[id_] = targets, self.now_s

    def release(self, number: int) -> None:
        id_ = sorted(self.targets)[number % len(self.targets)] if self.targets else 0
        lasted = self.lock.release(id_)
        assert lasted == (id_ in self.granted)
        self.granted.discard(id_)
        self.targets.pop(id_, None)

    def restart(self, number: int) -> None:
        """The party starts anew, and one of those inside has landed meanwhile."""
        still = {it: self.vchannels[it] for it in self.inside if it.name != str(number)}
        new = {f"new {number}": SETS[0]}
        self.lock.register_party(PARTY, {it.name: names for it, names in still.items()} | new)
        self.inside = set(still)
        self.came_s.clear()

    def wait(self, seconds: float) -> None:
        """As the actor does it: it advances whenever a hold ends."""
        until_s = self.now_s + seconds
        while (next_s := self.lock.next_s()) is not None and next_s <= until_s:
            self.now_s = next_s
            self.advance()
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
        world.advance()
    world.wait(WAIT_S + LEASE_S)
    world.advance()
    assert (world.came_s, world.lock.holds) == ({}, 0)


def held(lock: CutLockRules, targets: tuple[str, ...], now_s: float = 0.0) -> int:
    id_ = lock.hold(targets, now_s)
    assert id_ in lock.advance(now_s).granted
    return id_


def test_only_what_has_two_vchannels_in_common_waits() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    held(lock, V[:2])
    one, both = SharedHolder(PARTY, "one"), SharedHolder(PARTY, "both")
    lock.enter(one, V[1:])
    lock.enter(both, V)
    assert lock.advance(1.0).admitted == (one,)
    assert lock.advance(LEASE_S).admitted == (both,)
    assert lock.hold((V[1], V[2]), LEASE_S) not in lock.advance(LEASE_S).granted
    assert lock.hold(V[:1], LEASE_S) in lock.advance(LEASE_S).granted


def test_several_cuts_share_the_gate_and_later_ones_let_go_first_whoever_was_there() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    first = held(lock, V[:2])
    second = held(lock, V)
    early, late = SharedHolder(PARTY, "early"), SharedHolder(PARTY, "late")
    lock.enter(early, V)
    third = lock.hold(V, 0.5)
    lock.enter(late, V)
    assert lock.advance(0.5) == LockChanges((), (), {})
    assert lock.release(first)
    assert lock.advance(0.6) == LockChanges((), (), {})
    assert lock.release(second)
    assert lock.advance(0.7) == LockChanges((early,), (), {})
    lock.leave(early)
    assert lock.advance(0.8) == LockChanges((), (third,), {})
    assert lock.release(third)
    assert lock.advance(0.9) == LockChanges((late,), (), {})
    assert not lock.release(third)


def test_a_cut_does_not_wait_for_who_waits_at_another_one_with_nothing_in_common() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    held(lock, V[:2])
    lock.enter(SharedHolder(PARTY, "there"), V[:2])
    held(lock, V[1:], 0.5)
    assert lock.waiting == 1


def test_after_a_restart_no_hold_has_the_id_of_an_earlier_one() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    earlier = lock.hold(V, 0.0)
    later = CutLockRules([], WAIT_S, LEASE_S)
    later.start_ids_after(earlier)
    assert later.hold(V, 0.0) > earlier
    assert not later.release(earlier)


def test_what_takes_too_long_is_named_and_the_gate_opens() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    slow, new = SharedHolder(PARTY, "slow"), SharedHolder(PARTY, "new")
    lock.enter(slow, V)
    lock.advance(0.0)
    hold = lock.hold(V, 0.0)
    lock.enter(new, V)
    assert lock.advance(1.0) == LockChanges((), (), {})
    assert lock.advance(WAIT_S) == LockChanges((new,), (), {hold: (slow,)})


def test_after_a_start_no_cut_is_taken_before_every_party_has_told_what_is_under_way() -> None:
    lock = CutLockRules(["a", "b"], WAIT_S, LEASE_S)
    wide, narrow = lock.hold(V, 0.0), lock.hold(V[:1], 0.0)
    assert lock.advance(0.0) == LockChanges((), (), {})
    lock.register_party("a", {"7": V})
    lock.register_party("b", {})
    assert lock.advance(1.0) == LockChanges((), (narrow,), {})
    lock.enter(SharedHolder("a", "7"), V)
    lock.leave(SharedHolder("a", "7"))
    assert lock.advance(2.0).granted == (wide,)
    vain = CutLockRules(["a"], WAIT_S, LEASE_S)
    unheard = vain.hold(V, 0.0)
    assert vain.advance(WAIT_S) == LockChanges((), (), {unheard: ()})


def test_a_party_that_starts_anew_alone_keeps_inside_what_was_inside_and_is_not_done() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    other, done, going = SharedHolder("b", "7"), SharedHolder("a", "7"), SharedHolder("a", "8")
    for entrant in (other, done, going):
        lock.enter(entrant, V)
    lock.advance(0.0)
    hold = lock.hold(V, 0.0)
    lock.enter(SharedHolder("a", "9"), V)
    lock.register_party("a", {"8": V, "9": V})
    assert [lock.is_inside(it) for it in (other, done, going)] == [True, False, True]
    assert lock.waiting == 0, "who waited has appended nothing, and enters again"
    lock.leave(other)
    lock.leave(going)
    assert lock.advance(1.0).granted == (hold,)


def test_an_exclusive_hold_keeps_out_what_has_one_vchannel_in_common() -> None:
    lock = CutLockRules([], WAIT_S, LEASE_S)
    inside, later, other = (SharedHolder(PARTY, name) for name in ("inside", "later", "other"))
    lock.enter(inside, V[:1])
    lock.advance(0.0)
    hold = lock.hold(V[:2], 0.0, exclusive=True)
    assert hold not in lock.advance(0.0).granted, "it waits for one on a single vchannel"
    lock.leave(inside)
    assert hold in lock.advance(0.0).granted
    lock.enter(later, V[1:2])
    lock.enter(other, ("elsewhere_1v0",))
    assert lock.advance(0.0).admitted == (other,)
    assert lock.release(hold)
    assert lock.advance(0.0).admitted == (later,)
