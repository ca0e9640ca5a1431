"""The list of damaged places: each once, counted, and bounded."""

from broker.ports.wal import Corrupt
from broker.wal.damage_registry import PLACES_MAX, DamageRegistry


def test_a_place_is_listed_once_and_counted() -> None:
    damages = DamageRegistry(skipped=True)
    assert damages.met(Corrupt("p_1/b.log", 7, "checksum"))
    assert damages.met(Corrupt("p_1/a.log", 9, "checksum"))
    assert not damages.met(Corrupt("p_1/b.log", 7, "checksum"))
    found = [(it.pchannel, it.file, it.offset, it.times, it.skipped) for it in damages.found()]
    assert found == [("p_1", "p_1/a.log", 9, 1, True), ("p_1", "p_1/b.log", 7, 2, True)]


def test_the_list_is_bounded_and_what_is_beyond_is_counted() -> None:
    damages = DamageRegistry(skipped=False)
    for offset in range(PLACES_MAX + 3):
        damages.met(Corrupt("p_1/a.log", offset, "checksum"))
    assert (len(damages.found()), damages.unnamed) == (PLACES_MAX, 3)
    assert not damages.met(Corrupt("p_1/a.log", 0, "checksum"))
    assert (damages.found()[0].times, damages.unnamed) == (2, 3)
