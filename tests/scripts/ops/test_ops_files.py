"""The files for operators: what they name exists, and tools of their field accept them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from broker.cli.main import app
from broker.client import connect
from broker.metrics.registry import METRICS
from broker.process_settings import Settings
from tests.architecture.tree import ROOT
from tests.broker_process import BrokerProcess, free_port
from tests.missing_part import missing_part

OPS = ROOT / "scripts" / "ops"
NAME = re.compile(r"\b(?:tidemark|process)_[a-z_]+")
LABEL = re.compile(r"\b(?:by|without) \(([a-z_, ]+)\)|[{,](\w+)(?:=|!=)\"")
EXPOSURE_MAX = 2.0
"""Of systemd's 10.0; a unit without any hardening has 9.6."""


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((OPS / "tidemark.rules.yml").read_text())["groups"]
    return list(group["rules"])


def dashboard() -> dict[str, Any]:
    return dict(json.loads((OPS / "grafana-dashboard.json").read_text()))


def expressions() -> dict[str, str]:
    """All of them, by where they stand."""
    found = {it["alert"]: it["expr"] for it in alerts()}
    for panel in dashboard()["panels"]:
        for number, target in enumerate(panel.get("targets", [])):
            found[f"{panel['title']} {number}"] = target["expr"]
    return found


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if name == "promtool":
            missing_part(f"{name} is not installed here")
        pytest.skip(f"{name} is not installed here")
    return found


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a coordinator with a node exposes, both scraped, after something of everything."""
    data = tmp_path_factory.mktemp("ops") / "data"
    port = free_port()
    with BrokerProcess(data, nodes="1", pchannels="2", http_port=str(port)) as broker:

        async def work() -> str:
            async with connect(broker.address) as log:
                shards = (await log.collections.create("flights", shards=2)).vchannels
                await log.append("flights", b"row")
                await log.broadcast.append(shards, b"all")
                read = [it async for it in log.read(shards[0], until="now").messages()]
                assert read
                texts = [await _scraped(port), await _scraped(port + 1)]
            return "".join(texts)

        yield anyio.run(work)


async def _scraped(port: int) -> str:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        text = b""
        try:
            while True:
                text += await stream.receive()
        except anyio.EndOfStream:
            return text.decode()


def test_rules_and_dashboard_name_only_metrics_and_labels_that_a_broker_exposes(
    exposed: str,
) -> None:
    names = {re.split(r"[{ ]", line)[0] for line in exposed.splitlines() if line}
    families = {it.split()[2] for it in exposed.splitlines() if it.startswith("# TYPE")}
    labels = {label for it in METRICS for label in it.labels} | {"job", "instance", "le"}
    for where, expression in expressions().items():
        asked = set(NAME.findall(expression))
        # A family may have no sample now, such as the damaged places of a log that has none.
        assert asked <= names | families, f"{where}: {asked - names - families}"
        for by, label in LABEL.findall(expression):
            wanted = {it.strip() for it in by.split(",")} if by else {label}
            assert wanted <= labels, f"{where}: {wanted - labels}"
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
    for alert in alerts():
        text = alert["annotations"]["summary"]
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels


def test_rate_and_increase_are_taken_of_counters_and_nothing_else_is() -> None:
    kinds = {it.full_name: it.kind for it in METRICS}
    for where, expression in expressions().items():
        rated = set(re.findall(r"(?:rate|increase)\((\w+)", expression))
        for name in set(NAME.findall(expression)):
            stem = re.sub(r"_(bucket|sum|count)$", "", name)
            counts = kinds.get(name, kinds.get(stem)) in ("counter", "histogram")
            assert counts == (name in rated), f"{where}: {name}"


def test_every_alert_is_explained_and_nothing_else_is() -> None:
    page = (OPS / "README.md").read_text()
    rows = re.findall(r"^\| (Tidemark\w+) \| (\w+) \| .+ \| .+ \|$", page, re.M)
    assert rows == [(it["alert"], it["labels"]["severity"]) for it in alerts()]


def test_prometheus_accepts_the_rules() -> None:
    command = [tool("promtool"), "check", "rules", str(OPS / "tidemark.rules.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_on_what_it_is_for_and_not_on_a_broker_at_work(tmp_path: Path) -> None:
    promtool = tool("promtool")
    tests = yaml.safe_load((Path(__file__).parent / "rules_test.yml").read_text())
    tests["rule_files"] = [str(OPS / "tidemark.rules.yml")]
    fired = {case["alertname"] for it in tests["tests"] for case in it["alert_rule_test"]
             if case.get("exp_alerts")}  # fmt: skip
    assert fired == {it["alert"] for it in alerts()}, "each has a case in rules_test.yml"
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(tests))
    command = [promtool, "test", "rules", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_dashboard_is_laid_out_without_overlaps() -> None:
    taken: set[tuple[int, int]] = set()
    ids = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        ids.add(panel["id"])
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len(ids) == len(dashboard()["panels"])


def test_the_settings_file_has_settings_only_with_values_that_are_accepted() -> None:
    lines = (OPS / "tidemark.env").read_text().splitlines()
    given = dict(it.lstrip("#").split("=", 1) for it in lines if "TIDEMARK_" in it and "=" in it)
    fields = {name.removeprefix("TIDEMARK_").lower(): value for name, value in given.items()}
    assert set(fields) <= set(Settings.model_fields)
    Settings.model_validate(fields)


def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    unit = (OPS / "tidemark.service").read_text()
    program = re.search(r"^ExecStart=(\S+) (.*)$", unit, re.M)
    assert program is not None
    # It verifies that the program exists, which is installed on other machines only.
    file = tmp_path / "tidemark.service"
    file.write_text(unit.replace(program[1], sys.executable))
    verified = subprocess.run(
        [analyze, "verify", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stdout + judged.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX


def test_the_unit_and_the_image_start_a_command_that_exists() -> None:
    unit = (OPS / "tidemark.service").read_text()
    started = re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)
    assert started is not None
    steps = instructions()
    (image,) = [json.loads(it) for word, it in steps if word == "CMD"]
    for words in (shlex.split(started[1]), image):
        (command,) = [it for it in app.registered_commands if _name(it) == words[0]]
        assert "data_dir" in command.callback.__annotations__
        assert words[1] == "--data-dir"


def _name(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def instructions() -> list[tuple[str, str]]:
    """Those of the Containerfile, with continued lines joined."""
    text = (OPS / "Containerfile").read_text().replace("\\\n", " ")
    lines = [it for it in text.splitlines() if it and not it.startswith("#")]
    return [(word, rest) for word, _, rest in (it.partition(" ") for it in lines)]


@pytest.mark.parametrize("file", ["Containerfile", "README.md"])
def test_what_is_installed_can_be_one_of_several_hosts_and_is_locked(file: str) -> None:
    (asked,) = re.findall(
        r"pip install .*-c scripts/constraints.txt '\.\[([\w,]+)\]'", (OPS / file).read_text()
    )
    assert asked.split(",") == ["arrow", "compression", "kafka"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    locked = (ROOT / "scripts" / "constraints.txt").read_text()
    for package in [it for extra in asked.split(",") for it in extras[extra]]:
        name = re.split(r"[=<>]", package)[0]
        assert f"\n{name}==" in locked, name


def test_what_the_image_copies_is_enough_to_build_and_is_not_run_as_root(tmp_path: Path) -> None:
    steps = instructions()
    copied = tmp_path / "src"
    copied.mkdir()
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            for source in sources:
                path = ROOT / source
                assert path.exists(), source
                place = copied / target
                if path.is_dir():
                    shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, place)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=copied,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"broker/__main__.py", "actors/__init__.py"} <= set(names)
    assert any(it.startswith("schemas/generated/") for it in names)
    stages = [number for number, (word, _) in enumerate(steps) if word == "FROM"]
    last = dict(steps[stages[-1] :])
    assert last["USER"].split(":")[0] not in ("root", "0")
    assert last["ENTRYPOINT"].startswith("["), "a shell would keep signals from the broker"
