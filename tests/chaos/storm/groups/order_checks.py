"""What an ordered group promises, judged by what its members took and were told.

A message may be taken only when all before it of its key are settled, or come with it. A member may
get late what was leased to it long ago, so an early taking proves nothing; one proves something of
which an earlier message of the key was acknowledged by nobody yet, not even tried to be.

Pure.
"""

from collections.abc import Iterator, Mapping

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.groups.group_history import ORDERED, GroupHistory, OnVChannel, Taken
from tests.chaos.storm.history import History, Seen


def keys_have_one_owner(history: History) -> Iterator[Violation]:
    """Of a key no message goes out while an earlier one is with somebody, or waits."""
    for at in sorted({it.at for it in history.groups.taken if it.at.group == ORDERED}):
        part = history.groups.of(at)
        yield from _too_early(at, part, history.final.get(at.vchannel, []))


def _too_early(at: OnVChannel, part: GroupHistory, final: list[Seen]) -> Iterator[Violation]:
    settled_s = _first_tries(part)
    payloads = {it.id: it.payload for it in final}
    for key, ids in _by_key(part, final).items():
        place = {id: number for number, id in enumerate(ids)}
        for taken in part.taken:
            mine = [id for id in taken.messages if id in place]
            last = max([place[id] for id in mine], default=0)
            for id in ids[:last]:
                if id in taken.messages or settled_s.get(id, float("inf")) <= taken.taken_s:
                    continue
                behind = min([it for it in mine if place[it] > place[id]], key=place.__getitem__)
                text = (
                    f"{taken.member} got message {behind} of key {key!r} while message {id} was"
                    " not settled"
                )
                both = (payloads[id], payloads[behind])
                yield Violation("group key at two places", text, at.vchannel, both)
                break


def _first_tries(part: GroupHistory) -> Mapping[int, float]:
    """Since when each message may be acknowledged."""
    found: dict[int, float] = {}
    for ack in part.acked:
        if ack.told is not Told.REFUSED:
            for id in ack.ids:
                found[id] = min(ack.began_s, found.get(id, ack.began_s))
    return found


def _by_key(part: GroupHistory, final: list[Seen]) -> Mapping[bytes, list[int]]:
    """The messages of each key in the order of the log; what nobody took is in none."""
    keys = _keys(part.taken)
    found: dict[bytes, list[int]] = {}
    for seen in final:
        if seen.id in keys:
            found.setdefault(keys[seen.id], []).append(seen.id)
    return found


def _keys(taken: list[Taken]) -> Mapping[int, bytes]:
    return {id: key for it in taken for id, key in it.keys.items()}
