"""One file for a server and its clients: it is checked whole, and a slip of the pen is named."""

from pathlib import Path

import pytest

from broker.config import as_environment, load_settings
from broker.config_file import BadConfig, ClientConfig, client_config


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "broker.toml"


def test_a_flag_goes_before_the_environment_which_goes_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("pchannels = 3\nnodes = 3\nnode_id = 3\n[client]\nserver = 'prod:19531'\n")
    monkeypatch.setenv("TIDEMARK_PCHANNELS", "2")
    monkeypatch.setenv("TIDEMARK_NODES", "2")
    settings = load_settings({"config": file, "pchannels": 1, "cluster": None})
    assert (settings.pchannels, settings.nodes, settings.node_id) == (1, 2, 3)
    assert settings.cluster == "by-dev"


def test_the_file_is_read_again_at_each_load(file: Path) -> None:
    file.write_text("retention_ms = 1")
    flags = {"config": file}
    assert load_settings(flags).retention_ms == 1
    file.write_text("retention_ms = 2")
    assert load_settings(flags).retention_ms == 2


def test_the_environment_names_the_file_too_also_to_a_child(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("pchannels = 5")
    (file.parent / "tidemark.toml").write_text("pchannels = 6")
    assert load_settings({}).pchannels == 6
    monkeypatch.setenv("TIDEMARK_CONFIG", str(file))
    settings = load_settings({})
    assert settings.pchannels == 5
    assert as_environment(settings)["TIDEMARK_CONFIG"] == str(file)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("pchanels = 1", "'pchanels' in {} is not a setting; did you mean 'pchannels'?"),
        ("[clients]\nserver = 'a:1'", "did you mean 'client'?"),
        ("config = 'other.toml'", "a file cannot name another one"),
        ("[client]\nservr = 'a:1'", "'servr' in [client] of {} is not a setting of a client; did"),
        (
            "[client]\nserver = 'a'",
            "server in [client] of {} must be HOST:PORT, or several with commas",
        ),
        ("[client]\ntls = 1", "tls in [client] of {} must be true or false, not 1"),
        ("[client]\ncall_s = 'x'", "call_s in [client] of {} must be a number of seconds"),
        ("[client]\ncall_s = nan", "must be a number of seconds"),
        ("client = 5", "[client] of {} must be a table of settings, not 5"),
        ("pchannels = 0", "setting pchannels: must be greater than 0, not 0 ({})"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_to_write(
    content: str, sentence: str, file: Path
) -> None:
    file.write_text(content)
    with pytest.raises(BadConfig) as refused:
        load_settings({"config": file})
    assert sentence.format(file) in str(refused.value)


def test_everything_that_is_wrong_is_told_at_once_with_where_it_came_from(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("node_id = -1\ncolour = 1")
    monkeypatch.setenv("TIDEMARK_NODES", "many")
    with pytest.raises(BadConfig) as refused:
        load_settings({"config": file, "pchannels": 0})
    text = str(refused.value)
    assert "not 0 (--pchannels)" in text
    assert "not 'many' (TIDEMARK_NODES)" in text
    assert f"not -1 ({file})" in text
    assert "'colour'" in text
    with pytest.raises(BadConfig, match=r"'a' in \[client\].*; connect_s in"):
        client_config({"a": 1, "connect_s": 0}, "[client]")


def test_a_file_that_was_named_must_be_there(file: Path) -> None:
    assert load_settings({}).config is None
    with pytest.raises(BadConfig, match="there is no configuration file"):
        load_settings({"config": file})
    with pytest.raises(BadConfig, match="cannot read"):
        load_settings({"config": file.parent})


def test_the_table_of_a_client_may_hold_all_of_its_settings() -> None:
    given = {"server": "[::1]:1", "cluster": "blue", "tls": True, "tls_ca": "ca.pem"}
    given |= {"connect_s": 1, "open_s": 2.5}
    expected = ClientConfig("[::1]:1", "blue", True, "ca.pem", connect_s=1, open_s=2.5)
    assert client_config(given, "here") == expected


ETCD_A = (
    "'etcd://a' names no prefix for the keys, or one with other characters than letters, digits,"
    " '.', '_', '-' and single '/', or of more than 200; write it like"
    " etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/tidemark"
)


def test_a_wrong_url_of_etcd_is_told_with_where_it_was_set(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfig) as caught:
        load_settings({"meta": "etcd://a"})
    assert str(caught.value) == f"setting meta: {ETCD_A} (--meta)"
    file.write_text('meta = "etcd://a"')
    with pytest.raises(BadConfig) as caught:
        load_settings({"config": file})
    assert str(caught.value) == f"setting meta: {ETCD_A} ({file})"
    monkeypatch.setenv("TIDEMARK_META", "etcd://a")
    with pytest.raises(BadConfig) as caught:
        load_settings({})
    assert str(caught.value) == f"setting meta: {ETCD_A} (TIDEMARK_META)"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"meta_tls_ca": "f"}, "meta_tls_ca is set without meta, the URL of etcd"),
        (
            {"meta": "etcd://me@a/p"},
            "meta names user me, and meta_password_file is not set",
        ),
        ({"tls_cert": "f"}, "tls_cert is set without tls_key; TLS needs both"),
        (
            {"jwt_issuer": "i"},
            "jwt_issuer is set without jwt_jwks and jwt_audience; JWTs need them",
        ),
    ],
)
def test_a_rule_over_several_settings_names_them_and_no_place(
    given: dict[str, str], told: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        load_settings(given)
    assert str(caught.value) == told
