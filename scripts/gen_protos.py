"""Generates schemas/generated/ from schemas/proto/; with --check, only compares.

Needs the development environment
(grpcio-tools, betterproto2_compiler, ruff).

Options of the compiler, and why: asynchronous grpclib stubs for both sides, because the edge and
the client run on asyncio; plain dataclasses, because pydantic would validate every message again;
no `google_protobuf_descriptors`, so that no descriptor is registered in protobuf's pool, where
pymilvus registers the same file names.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "schemas" / "proto"
TARGET = ROOT / "schemas" / "generated"
OPTIONS = "client_generation=async,server_generation=async"


def main() -> int:
    """Generate or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 when stale"
    )
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "generated"
        generate(fresh)
        if check:
            return report(differences(fresh, TARGET))
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(fresh, TARGET)
    return 0


def generate(target: Path) -> None:
    """Generate into `target`, outside of this repository's ruff settings."""
    target.mkdir(parents=True)
    tools = str(Path(sys.executable).parent)
    sources = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCES}"]
    command += [f"--python_betterproto2_out={target}", f"--python_betterproto2_opt={OPTIONS}"]
    subprocess.run(
        [*command, *sources],
        check=True,
        cwd=target,
        env=os.environ | {"PATH": tools + os.pathsep + os.environ["PATH"]},
        stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
    )
    shutil.rmtree(target / ".ruff_cache", ignore_errors=True)


def differences(fresh: Path, committed: Path) -> list[str]:
    """Files that are missing, left over or different, relative to the folder."""
    wanted, have = files(fresh), files(committed)
    both = wanted & have
    changed = {
        name for name in both if not filecmp.cmp(fresh / name, committed / name, shallow=False)
    }
    return sorted(changed | (wanted ^ have))


def files(folder: Path) -> set[str]:
    """Paths of all files, relative to the folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths if "__pycache__" not in path.parts}


def report(stale: list[str]) -> int:
    """Print what is stale; the exit code."""
    if not stale:
        print("schemas/generated is up to date")
        return 0
    print(
        f"schemas/generated does not match schemas/proto in {', '.join(stale)}: "
        "run `python scripts/gen_protos.py` and commit the result",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
