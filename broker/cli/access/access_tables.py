"""What `tidemark auth` prints."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from broker.cli.session import USAGE, fail, with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column, moment
from broker.client import Client

DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def change(server: str, start: Callable[[Client], Awaitable[None]], sentence: str) -> None:
    """Make a change, and say so."""
    with_client(server, start)
    show(sentence)


def show_me(server: str, *, as_json: bool) -> None:
    """Print who the caller is, and one row for each grant."""
    me = with_client(server, lambda client: client.auth.who_am_i())
    if as_json:
        return print_json(asdict(me))
    if not me.controlled:
        return show("this broker asks nobody who they are: everybody may do everything")
    until = f", until {moment(me.expires_ms)}" if me.expires_ms else ""
    show(f"{me.user}, by {me.proof}{until}; roles: {', '.join(me.roles) or 'none'}")
    return show(*[f"  {it}" for it in me.grants])


def show_roles(server: str, *, as_json: bool) -> None:
    """Print one row for each role."""
    found = with_client(server, lambda client: client.auth.show()).roles
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(
        [
            Column("role", [it.name for it in found]),
            Column("grants", ["\n".join(it.grants) for it in found]),
            Column("built in", ["yes" if it.built_in else "" for it in found], leaves=1),
        ]
    )


def show_users(server: str, *, as_json: bool) -> None:
    """Print one row for each user."""
    found = with_client(server, lambda client: client.auth.show())
    if as_json:
        return print_json([asdict(it) for it in found.users])
    count = [sum(token.user == it.name for token in found.tokens) for it in found.users]
    show_fitted(
        [
            Column("user", [it.name for it in found.users]),
            Column("roles", [", ".join(it.roles) for it in found.users]),
            Column("tokens", [str(it) for it in count], leaves=1),
        ]
    )
    if not found.controlled:
        show("access is not controlled: set auth to on, and start the broker again")
    return None


def show_tokens(server: str, *, as_json: bool) -> None:
    """Print one row for each token."""
    found = with_client(server, lambda client: client.auth.show()).tokens
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(
        [
            Column("token", [it.id for it in found]),
            Column("user", [it.user for it in found]),
            Column("made", [moment(it.made_ms) for it in found], leaves=2),
            Column("expires", [moment(it.expires_ms) if it.expires_ms else "" for it in found]),
            Column("note", [it.note for it in found], leaves=1),
        ]
    )


def make_token(server: str, user: str, expires: str, note: str, *, as_json: bool) -> None:
    """Print a new token, alone on its line, so that it can go to a file."""
    ttl = _duration(expires) if expires else None
    made = with_client(server, lambda client: client.auth.add_token(user, ttl=ttl, note=note))
    if as_json:
        return print_json({"token": made.text, **asdict(made.info)})
    return show(made.text)


def _duration(text: str) -> timedelta:
    found = DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        fail(f"--expires {text!r} is no duration; use a number and s, m, h or d: 30d", USAGE)
    try:
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    except OverflowError:
        fail(f"--expires {text!r} is too long; a token lasts at most 10 years", USAGE)
