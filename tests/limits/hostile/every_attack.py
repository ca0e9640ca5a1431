"""All attacks. `test_attacks.py` tries them, `scripts/attacks.py` measures what others notice."""

from functools import wraps
from typing import Final

import anyio

from tests.limits.hostile import (
    hostile_handshakes,
    hostile_names,
    hostile_requests,
    hostile_tokens,
    packed_bombs,
)
from tests.limits.hostile.attack import Attack, Got, Run, Setup, Target
from tests.limits.hostile.hostile_peers import CLOSED, FLOODS, OnConnection, watch
from tests.wire.raw_peer import raw


def _alone(attack: OnConnection) -> Run:
    """The attack on a connection of its own; it is not opened again."""

    @wraps(attack)
    async def run(target: Target, got: Got) -> None:
        async with raw(target) as peer, anyio.create_task_group() as tasks:
            tasks.start_soon(watch, peer, got)
            await attack(peer)

    return run


def _attack(setup: Setup, run: Run, gets: str) -> Attack:
    return Attack(run, setup, frozenset(gets.split(", ")))


_FRAMES: Final = "SETTINGS, answers, RST_STREAM, PING, GOAWAY"
_REFUSED: Final = "INVALID_ARGUMENT, FAILED_PRECONDITION"
_PLAIN: Final = {
    packed_bombs.gzip_messages: "INVALID_ARGUMENT",
    packed_bombs.packed_batches: "stored, batch INVALID_ARGUMENT, batch UNRECOVERABLE",
    packed_bombs.packed_within: "stored",
    packed_bombs.packed_rows: "stored, batch INVALID_ARGUMENT",
    hostile_requests.unknown_fields: "INVALID_ARGUMENT, INTERNAL",
    hostile_requests.tiny_messages: "INVALID_ARGUMENT, INTERNAL",
    hostile_requests.wrong_lengths: "INVALID_ARGUMENT",
    hostile_requests.deep_requests: "INVALID_ARGUMENT",
    hostile_requests.many_properties: "stored, message INVALID_ARGUMENT",
    hostile_requests.unfinished_requests: "INTERNAL",
    hostile_requests.many_batch_fields: "INVALID_ARGUMENT",
    hostile_names.native_names: f"OK, {_REFUSED}, UNIMPLEMENTED",
    hostile_names.milvus_names: f"OK, {_REFUSED}",
    hostile_names.vchannel_names: "stored, batch INVALID_ARGUMENT, message INVALID_ARGUMENT",
    hostile_names.page_paths: "HTTP 200, HTTP 404, HTTP 405, closed",
}
_AUTH: Final = {
    hostile_tokens.huge_tokens: "UNAUTHENTICATED",
    hostile_tokens.wrong_tokens: "UNAUTHENTICATED",
    hostile_tokens.hostile_jwts: "UNAUTHENTICATED",
    hostile_tokens.signed_jwts: "UNAUTHENTICATED",
    hostile_tokens.forged_jwts: "UNAUTHENTICATED",
    hostile_tokens.unknown_keys: "UNAUTHENTICATED",
    hostile_tokens.wrong_secrets: "UNAUTHENTICATED",
}
_TLS: Final = {
    hostile_handshakes.half_open_handshakes: "closed",
    hostile_handshakes.halves_of_hellos: "closed",
    hostile_handshakes.handshakes: "closed, refused",
}
ATTACKS: Final = (
    *[_attack(Setup.PLAIN, _alone(it), _FRAMES) for it in FLOODS],
    *[_attack(Setup.PLAIN, _alone(it), f"{_FRAMES}, closed") for it in CLOSED],
    *[_attack(Setup.PLAIN, run, gets) for run, gets in _PLAIN.items()],
    *[_attack(Setup.AUTH, run, gets) for run, gets in _AUTH.items()],
    *[_attack(Setup.TLS, run, gets) for run, gets in _TLS.items()],
)
