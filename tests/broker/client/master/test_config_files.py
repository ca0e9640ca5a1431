"""YAML files of configuration as changes, and what is wrong with bad ones, by file and line."""

from pathlib import Path

import pytest

from broker.client.master.config_files import BadConfigFile, changes_of

REFERENCE = """\
master:
  address: localhost
  port: 53100
proxy.timezone: UTC+8
Quoted: "a: b"
empty:
flags: [1, {two: 2}, null]
map: {}
nested: {Deep: {er: true}}
"""


def values(path: Path) -> dict[str, str | None]:
    return {it.key: it.value for it in changes_of(path)}


def written(folder: Path, text: str | bytes, name: str = "file.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_scalars_are_kept_as_written_and_lists_are_json(tmp_path: Path) -> None:
    assert values(written(tmp_path, REFERENCE)) == {
        "master/address": "localhost",
        "master/port": "53100",
        "proxy.timezone": "UTC+8",
        "Quoted": "a: b",
        "empty": "",
        "flags": '[1, {"two": 2}, null]',
        "map": "{}",
        "nested/Deep/er": "true",
    }


def test_each_change_knows_its_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, REFERENCE)
    assert [it.origin for it in changes_of(path)][:4] == [
        f"{path}:2",
        f"{path}:3",
        f"{path}:4",
        f"{path}:5",
    ]


def test_a_folder_is_its_yaml_files_by_name(tmp_path: Path) -> None:
    written(tmp_path, "app/b: 2\n", "b.yaml")
    written(tmp_path, "app/a: 1\n", "a.yaml")
    written(tmp_path, "not read", "c.yml")
    assert list(values(tmp_path)) == ["app/a", "app/b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: [1\n", r"file\.yaml:3: "),
        ("a: 1\nb: x: y\n", r"file\.yaml:2: mapping values are not allowed"),
        ("- 1\n", r"file\.yaml:1: a file must be a map"),
        ("a: 1\n? [x]\n: 2\n", r"file\.yaml:2: a key must be text"),
        ("", "sets nothing"),
        (b"a: \xff\n", "is not UTF-8"),
        ("a: &x [*x]\n", r"file\.yaml:1: the value has more than"),
        ("a: !!python/object:os.system {}\n", "cannot be stored as JSON"),
        ("a: 1\n<<: {b: 2}\n", r"file\.yaml:2: '<<' is not supported"),
        ("a: b\n--- \nc: d\n", r"file\.yaml:2: "),
        ("a: [!!binary x]\n", r"file\.yaml:1: "),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(BadConfigFile, match=says):
        changes_of(written(tmp_path, text))


def test_nested_aliases_and_depths_are_bounded(tmp_path: Path) -> None:
    laughs = "x: &a0 [1]\n" + "".join(
        f"y{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    with pytest.raises(BadConfigFile, match="elements"):
        changes_of(written(tmp_path, laughs))
    maps = "k0: &m0 {v: 1}\n" + "".join(
        f"k{n}: &m{n} {{{', '.join(f'e{i}: *m{n - 1}' for i in range(10))}}}\n" for n in range(1, 9)
    )
    with pytest.raises(BadConfigFile, match="more than 10,000 keys"):
        changes_of(written(tmp_path, maps))
    with pytest.raises(BadConfigFile, match="nested too deeply"):
        changes_of(written(tmp_path, "a: " + "{b: " * 60 + "1" + "}" * 60))
    with pytest.raises(BadConfigFile, match="nested too deeply"):
        changes_of(written(tmp_path, "a: " + "[" * 5000 + "]" * 5000))


def test_missing_and_empty_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfigFile, match=r"cannot read .*: No such file"):
        changes_of(tmp_path / "none.yaml")
    with pytest.raises(BadConfigFile, match=r"holds no file \*\.yaml"):
        changes_of(tmp_path)
    with pytest.raises(BadConfigFile, match="more than 16,777,216 bytes"):
        changes_of(written(tmp_path, b"#" * (16 * 1024 * 1024 + 1)))
