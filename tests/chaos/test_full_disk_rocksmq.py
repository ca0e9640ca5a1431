"""A disk that is really full under an embedded queue: see `rocksmq_on_full_disk`.

The disk is a tmpfs in a mount namespace of the processes, so that it is gone with them. Root may
make one, and in most systems everybody may; where nobody may the test fails and says so.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DISK_MIB = 64
ENDED_S_MAX = 300
PROGRAM = Path(__file__).with_name("rocksmq_on_full_disk.py")
SMALL_DISK = f'mount -t tmpfs -o size={DISK_MIB}m rocksmq-test "$0" && '


def on_small_disk(disk: Path, shell: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line, in which `"$@"` is the program on this disk."""
    disk.mkdir()
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [*unshare, "sh", "-c", SMALL_DISK + shell, str(disk)]
    return subprocess.run(
        [*command, sys.executable, str(PROGRAM), str(disk)],
        capture_output=True,
        text=True,
        timeout=ENDED_S_MAX,
        check=False,
    )


@pytest.mark.parametrize(
    "shell",
    ['"$@"', '{ "$@" --die; test $? = 137; } && "$@"'],
    ids=["freed", "killed-then-freed"],
)
def test_a_full_disk_refuses_calls_serves_reads_and_heals_by_itself(
    tmp_path: Path, shell: str
) -> None:
    ended = on_small_disk(tmp_path / "disk", shell)
    if "permission denied" in ended.stderr.lower() or "not permitted" in ended.stderr.lower():
        pytest.fail(f"a small file system of its own is needed; run as root: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("done")
