"""Which Java counts, and what a person is told when there is none."""

from pathlib import Path

import java
import pytest


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
        ("", 0),
    ],
)
def test_the_major_version_is_read_from_any_banner(banner: str, major: int) -> None:
    assert java.version_of(banner) == major


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_an_old_java_home_is_passed_over_for_a_newer_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    newer = fake_java(tmp_path / "newer", "21.0.1")
    monkeypatch.setenv("PATH", str(newer / "bin"), prepend=":")
    assert java.find_java() == newer


def test_java_home_is_taken_when_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path, "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == home
