"""The first users: by a command, and from a file."""

import re
from pathlib import Path

import pytest

from broker.app.process_errors import CannotStart
from broker.app.security.bootstrap import bootstrap_administrator, first_users, with_bootstrap
from broker.app.storage import metadata
from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.tokens import read_token
from broker.data_folder import hold
from broker.process_settings import Settings

NOW_MS = 1000
SECRET = "s" * 43
FILE = f"""
[roles.loader]
grants = ["produce:collection:flights*"]

[users.root]
roles = ["admin"]
token = "tm_abc_{SECRET}"

[users.loader]
roles = ["loader"]
"""


def written(folder: Path, text: str = FILE, mode: int = 0o600) -> Path:
    file = folder / "users.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_makes_roles_users_and_tokens(tmp_path: Path) -> None:
    book = with_bootstrap(AccessBook(), written(tmp_path), NOW_MS)
    assert book.admins() == ["root"]
    assert book.users["loader"].roles == ("loader",)
    assert [str(it) for it in book.roles["loader"].grants] == ["produce:collection:flights*"]
    given = read_token(f"tm_abc_{SECRET}")
    assert given is not None
    found = book.bearer(given, NOW_MS)
    assert found is not None
    assert found.name == "root"
    # Again, after users were dropped by mistake: what is there stays.
    assert with_bootstrap(book, written(tmp_path), NOW_MS).users == book.users


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[users.root", "is not valid TOML"),
        ("x = 1", "[x] is not known; use [roles.NAME] and [users.NAME]"),
        ("[grants.x]", "[grants] is not known"),
        ("users = 1", "[users] is not known"),
        ("[users]\nroot = 1", "[users.root] may have roles, token, token_hash only"),
        ("[users.root]\nrole = ['admin']", "[users.root] may have roles, token, token_hash only"),
        ("[users.root]\ntoken_hash = 1", "token_hash of [users.root] must be text"),
        ("[users.root]\ntoken_hash = 'sha256:a:b:c'", "the token_hash of 'root' has not the form"),
        ("[roles.r]\ngrants = 'x'", "grants of [roles.r] must be a list of texts"),
        ("[roles.r]\ngrants = [1]", "grants of [roles.r] must be a list of texts"),
        ("[users.root]\ntoken = 1", "token of [users.root] must be text"),
        ("[roles.r]\ngrants = ['eat:x:y']", "'eat' is no action"),
        ("[users.root]\nroles = ['none']", "there is no role 'none'"),
        ("[users.root]\ntoken = 'secret'", "the token of 'root' has not the form tm_ID_SECRET"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(
    tmp_path: Path, text: str, why: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(CannotStart, match=re.escape(why)) as refused:
        with_bootstrap(AccessBook(), file, NOW_MS)
    assert str(file) in str(refused.value)
    assert "secret" not in str(refused.value).replace("a secret of 43", "")


def test_a_file_with_tokens_is_for_its_owner_only(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="chmod 600"):
        with_bootstrap(AccessBook(), written(tmp_path, mode=0o644), NOW_MS)
    # Without a token there is nothing to hide.
    open_file = written(tmp_path, FILE.replace("token =", "#"), mode=0o644)
    assert with_bootstrap(AccessBook(), open_file, NOW_MS).admins() == ["root"]


def test_a_file_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot read"):
        with_bootstrap(AccessBook(), tmp_path / "none.toml", NOW_MS)


def test_a_file_of_first_users_knows_the_token_of_its_administrator_by_a_hash(
    tmp_path: Path,
) -> None:
    token, text = first_users("root")
    assert token not in text
    book = with_bootstrap(AccessBook(), written(tmp_path, text, mode=0o644), NOW_MS)
    given = read_token(token)
    assert given is not None
    found = book.bearer(given, NOW_MS)
    assert found is not None
    assert (found.name, book.admins()) == ("root", ["root"])


async def stored(data_dir: Path) -> AccessBook:
    with hold(data_dir) as folder:
        async with metadata(Settings(data_dir=folder.root), folder) as store:
            return await StoredAccess(store).read()


async def test_the_command_makes_an_administrator_in_a_folder_that_need_not_exist(
    tmp_path: Path,
) -> None:
    data = tmp_path / "new" / "data"
    texts = [
        await bootstrap_administrator(Settings(data_dir=data), "root"),
        await bootstrap_administrator(Settings(data_dir=data), "root"),
    ]
    book = await stored(data)
    assert book.admins() == ["root"]
    for text in texts:  # a second one is for those who have lost the first
        given = read_token(text)
        assert given is not None
        assert book.bearer(given, NOW_MS) is not None


async def test_a_user_who_is_there_becomes_an_administrator_besides(tmp_path: Path) -> None:
    with hold(tmp_path) as folder:
        async with metadata(Settings(data_dir=folder.root), folder) as store:
            users = written(tmp_path, "[users.ann]\nroles = ['reader']")
            await StoredAccess(store).change(lambda it: with_bootstrap(it, users, NOW_MS))
    await bootstrap_administrator(Settings(data_dir=tmp_path), "ann")
    assert (await stored(tmp_path)).users["ann"].roles == ("reader", "admin")


async def test_a_folder_in_use_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(CannotStart, match="is in use by process"):
        await bootstrap_administrator(Settings(data_dir=tmp_path), "root")
    with pytest.raises(CannotStart, match="user name 'no name' must begin"):
        await bootstrap_administrator(Settings(data_dir=tmp_path), "no name")
