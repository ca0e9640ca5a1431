"""The image: built and run where a container engine is at hand, skipped with a reason elsewhere."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.scripts.ops.test_ops_files import instructions

BASE = os.environ.get("TIDEMARK_TEST_BASE_IMAGE", "")
"""An image to build on where no registry can be reached; it needs Python 3.11 with venv."""
ENGINES = ("podman", "docker", "buildah")
ANSWER_S, PULL_S, BUILD_S, RUN_S = 20.0, 120.0, 900.0, 120.0
NAME = "localhost/tidemark-under-test"

SCRIPT = """
set -e
test "$(id -u)" = 10001
tidemark serve --data-dir /var/lib/tidemark/data --pchannels 2 > /tmp/ready &
broker=$!
tries=0
until grep -q 'tidemark ready' /tmp/ready; do
    kill -0 $broker
    tries=$((tries + 1)); test $tries -lt 600; sleep 0.1
done
tidemark collection create flights --shards 2
printf 'one\\ntwo\\n' | tidemark produce flights
tidemark consume flights --until-now --format raw | sort
tidemark backup /var/lib/tidemark/backup
kill $broker
wait $broker
tidemark restore /var/lib/tidemark/backup --data-dir /var/lib/tidemark/restored
echo all done
"""


@dataclass(frozen=True)
class Engine:
    """A program that builds images and runs them."""

    program: str

    def run(self, *arguments: str, within_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    @property
    def builds_without_daemon(self) -> Sequence[str]:
        # Inside of a container there is no further one to isolate a build in.
        if self.program != "buildah":
            return ()
        certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"
        return ("--isolation", "chroot", "--network", "host", "-v", certificates)

    def script(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell script in a new container of the image."""
        advertised = "TIDEMARK_ADVERTISE=127.0.0.1:19531"
        if self.program != "buildah":
            options = ("run", "--rm", "-e", advertised, "--entrypoint", "sh")
            return self.run(*options, NAME, "-c", script, within_s=RUN_S)
        container = self.run("from", NAME, within_s=RUN_S).stdout.strip()
        try:
            options = ("run", "--isolation", "chroot", "-e", advertised, container)
            return self.run(*options, "--", "sh", "-c", script, within_s=RUN_S)
        finally:
            self.run("rm", container, within_s=RUN_S)


@pytest.fixture
def engine() -> Engine:
    why = ["no container engine works here"]
    for name in ENGINES:
        if shutil.which(name) is None:
            continue
        found = Engine(name)
        try:
            answered = found.run("info", within_s=ANSWER_S)
        except subprocess.TimeoutExpired:
            why.append(f"{name} does not answer")
            continue
        if answered.returncode == 0:
            return found
        why.append(f"{name}: {answered.stderr.strip().splitlines()[-1:]}")
    pytest.skip("; ".join(why))


def _base(engine: Engine) -> str:
    """The image to build on; skips when it is not here and cannot be had."""
    (default,) = [it.partition("=")[2] for word, it in instructions() if word == "ARG"]
    base = BASE or default
    if engine.run("inspect", "--type", "image", base, within_s=ANSWER_S).returncode == 0:
        return base
    try:
        pulled = engine.run("pull", base, within_s=PULL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{base} could not be pulled within {PULL_S:.0f} s")
    if pulled.returncode != 0:
        pytest.skip(f"{base} cannot be pulled: {pulled.stderr.strip().splitlines()[-1:]}")
    return base


@pytest.mark.slow
def test_the_image_builds_and_serves_as_a_user_without_rights(engine: Engine) -> None:
    base = _base(engine)
    file = str(Path("scripts") / "ops" / "Containerfile")
    built = engine.run(
        *("build", *engine.builds_without_daemon, "--build-arg", f"BASE={base}"),
        *("-f", file, "-t", NAME, "."),
        within_s=BUILD_S,
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    ran = engine.script(SCRIPT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "one\ntwo\n" in ran.stdout
    assert ran.stdout.endswith("all done\n")
