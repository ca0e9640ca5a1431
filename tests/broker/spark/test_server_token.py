"""The token of a query: where it comes from, and what happens when it is replaced or wrong."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.client.errors import NotAuthenticated
from broker.spark.gateway import Gateway, gateway_here
from broker.spark.refusals import BadOption
from broker.spark.server_options import Server, server_of
from broker.spark.server_token import token_here
from broker.spark.source.source_options import parse
from tests.broker_process import BrokerProcess

TOKENS = [f"tm_{name}_{name[-1] * 43}" for name in ("user1", "user2", "user3")]
KNOWN = TOKENS[:2]
USERS = "".join(
    f'[users.u{number}]\nroles = ["admin"]\ntoken = "{it}"\n' for number, it in enumerate(KNOWN)
)
REFUSED_S_MAX = 120.0
"""Against hanging only."""


@pytest.fixture(autouse=True)
def no_token_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEMARK_TOKEN", "TIDEMARK_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("of-file\n")
    return file


def test_an_option_goes_before_the_environment_and_a_token_before_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert token_here("", "") == ""
    monkeypatch.setenv("TIDEMARK_TOKEN_FILE", str(file))
    assert token_here("", "") == "of-file"
    monkeypatch.setenv("TIDEMARK_TOKEN", "of-environment")
    assert token_here("", "") == "of-environment"
    assert token_here("", str(file)) == "of-file"
    assert server_of({"token": " of-option "}).current_token() == "of-option"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token": "planted", "tokenfile": "/f"}, "'tokenFile' is '/f': token is set, too"),
        ({"token": " "}, "'token' is '': it is empty"),
        ({"tokenfile": ""}, "'tokenFile' is '': it is empty"),
        ({"tokn": "tm_planted"}, "did you mean token?"),
    ],
)
def test_options_that_contradict_are_refused_without_the_token(
    given: dict[str, str], told: str
) -> None:
    with pytest.raises(BadOption) as refused:
        parse({"subscribe": "a", **given}, streaming=True)
    assert told in str(refused.value)
    assert "planted" not in str(refused.value)


def test_a_file_without_a_token_is_named_with_the_host_and_without_its_content(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {b"": "it is empty on", b"plant\xc3\xa9d": "it is not ASCII text"}
    for content, told in contents.items():
        file.write_bytes(content)
        with pytest.raises(BadOption, match=told) as refused:
            token_here("", str(file))
        assert str(file) in str(refused.value)
        assert "plant" not in str(refused.value).replace(str(file), "")
    file.unlink()
    monkeypatch.setenv("TIDEMARK_TOKEN_FILE", str(file))
    with pytest.raises(BadOption, match=r"TIDEMARK_TOKEN_FILE.*No such file"):
        token_here("", "")


def test_the_token_travels_with_the_server_and_no_text_shows_it() -> None:
    server = Server("h:1", "by-dev", token="planted")
    assert pickle.loads(pickle.dumps(Gateway(server)))._server.current_token() == "planted"
    assert "planted" not in repr(server)
    assert "planted" not in repr(parse({"subscribe": "a", "token": "planted"}, streaming=True))


def test_a_replaced_file_is_read_when_a_task_begins_or_the_token_is_refused(
    tmp_path: Path, file: Path
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    users.chmod(0o600)
    settings = {"auth": "on", "auth_bootstrap": str(users), "pchannels": "1"}
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        server = Server(broker.listen, "by-dev", token_file=str(file))
        file.write_text(KNOWN[0])
        gateway, planning = gateway_here(server), Gateway(server)
        assert gateway.collections() == planning.collections() == []
        # The broker knows this token no longer; a planning call finds the next one by itself.
        planning.attempt(lambda log: log.auth.revoke_token("user1"))
        file.write_text(TOKENS[2])
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(planning.collections)
            with pytest.raises(NotAuthenticated, match="the token is not known"):
                asked.result(REFUSED_S_MAX)
        file.write_text(KNOWN[1])
        assert planning.collections() == []
        assert gateway_here(server) is gateway
        gateway.attempt(lambda log: log.auth.add_role("r", ["consume:collection:*"]))
        planning.close()
        gateway.close()
