"""The first users of a broker: made in its metadata, or from a file when it starts.

The file is TOML:

    [roles.loader]
    grants = ["produce:collection:flights*"]

    [users.root]
    roles = ["admin"]
    token = "tm_..."        # optional; then nobody else may read the file
    token_hash = "sha256:..."    # instead: what `tidemark init --secure` keeps of a token

    [users.loader]          # without a token: known by a certificate of this name
    roles = ["loader"]
"""

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from actors import SystemClock
from broker.app.process_errors import CannotStart
from broker.app.storage import metadata
from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import ADMIN, AccessBook
from broker.core.security.book_changes import with_role, with_token, with_user
from broker.core.security.tokens import StoredToken, digest_of, hash_text, read_hash, read_token
from broker.data_folder import DataFolderError, hold
from broker.edge.access.new_token import new_salt, new_token
from broker.model.failure import Refused
from broker.process_settings import Settings

KEYS: Final = {"roles": {"grants"}, "users": {"roles", "token", "token_hash"}}
TEXTS: Final = ("token", "token_hash")


def with_admin(book: AccessBook, user: str, token: StoredToken, now_ms: int) -> AccessBook:
    """The book with this user as an administrator, who has the token besides others."""
    known = book.users.get(user)
    roles = (ADMIN,) if known is None else tuple(dict.fromkeys((*known.roles, ADMIN)))
    after = with_user(book, user, roles, replaces=known is not None)
    return with_token(after, token, now_ms)


async def bootstrap_administrator(settings: Settings, user: str) -> str:
    """Make the user an administrator there; returns a token. Raises CannotStart.

    The data folder is made when it is missing; no broker may run on it.
    """
    now_ms = SystemClock().wall_ms()
    text, token = new_token(user, now_ms, note="by tidemark auth bootstrap")
    try:
        with hold(settings.data_dir) as folder:
            async with metadata(settings, folder) as store:
                records = StoredAccess(store)
                await records.change(lambda book: with_admin(book, user, token, now_ms))
    except DataFolderError as error:
        raise CannotStart(str(error)) from error
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    return text


def first_users(administrator: str) -> tuple[str, str]:
    """A new token of an administrator, and the content of a file that has its hash alone."""
    text, token = new_token(administrator, SystemClock().wall_ms())
    file = (
        "# The first users, read while nobody may administer the broker. The hash is no secret:\n"
        "# it proves nothing, and the token cannot be found from it.\n"
        f'[users.{administrator}]\nroles = ["{ADMIN}"]\ntoken_hash = "{hash_text(token)}"\n'
    )
    return text, file


def with_bootstrap(book: AccessBook, file: Path, now_ms: int) -> AccessBook:
    """The book with the roles, users and tokens of the file. Raises CannotStart."""
    content = _read(file)
    try:
        for name, fields in content.get("roles", {}).items():
            book = with_role(book, name, fields.get("grants", []), replaces=name in book.roles)
        for name, fields in content.get("users", {}).items():
            book = with_user(book, name, fields.get("roles", []), replaces=name in book.users)
            if "token" in fields:
                book = with_token(book, _token(file, name, str(fields["token"]), now_ms), now_ms)
            if "token_hash" in fields:
                book = with_token(
                    book, _hashed(file, name, str(fields["token_hash"]), now_ms), now_ms
                )
    except Refused as refused:
        raise CannotStart(f"{file}: {refused.refusal.cause}") from None
    return book


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(file.read_text())
        open_to_others = bool(file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError as error:
        raise CannotStart(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CannotStart(f"{file} is not valid TOML: {error}") from None
    for table, entries in content.items():
        if table not in KEYS or not isinstance(entries, dict):
            raise CannotStart(f"{file}: [{table}] is not known; use [roles.NAME] and [users.NAME]")
        for name, fields in entries.items():
            _check(file, table, name, fields)
            if open_to_others and "token" in fields:
                raise CannotStart(
                    f"{file} holds tokens, and others than its owner may use it; chmod 600 it"
                )
    return content


def _check(file: Path, table: str, name: str, fields: object) -> None:
    known = ", ".join(sorted(KEYS[table]))
    if not isinstance(fields, dict) or not KEYS[table].issuperset(fields):
        raise CannotStart(f"{file}: [{table}.{name}] may have {known} only")
    for key, value in fields.items():
        texts = [value] if key in TEXTS else value
        if not isinstance(texts, list) or not all(isinstance(it, str) for it in texts):
            form = "text" if key in TEXTS else "a list of texts"
            raise CannotStart(f"{file}: {key} of [{table}.{name}] must be {form}")


def _token(file: Path, user: str, text: str, now_ms: int) -> StoredToken:
    given = read_token(text)
    if given is None:
        raise CannotStart(
            f"{file}: the token of {user!r} has not the form tm_ID_SECRET, with a secret of 43"
            " characters or more; `tidemark auth bootstrap` makes one"
        )
    made = StoredToken(given.id, user, new_salt(), b"", now_ms, note=f"from {file.name}")
    return replace(made, digest=digest_of(made.salt, given.secret))


def _hashed(file: Path, user: str, text: str, now_ms: int) -> StoredToken:
    found = read_hash(text, user, now_ms, f"from {file.name}")
    if found is None:
        raise CannotStart(
            f"{file}: the token_hash of {user!r} has not the form sha256:ID:SALT:DIGEST;"
            " `tidemark init --secure` makes one"
        )
    return found
