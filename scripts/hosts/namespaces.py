"""A network namespace: one host, as processes see it."""

import subprocess
from dataclasses import dataclass


class NoNamespaces(Exception):
    """This machine lets us make none; the text says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace. `inside`: the words that run a command there; the pid stays the same."""

    name: str
    ip: str

    @property
    def inside(self) -> tuple[str, ...]:
        """Empty for the machine itself, whose name is ""."""
        return ("ip", "netns", "exec", self.name) if self.name else ()


def ip_command(*words: str) -> None:
    """Run `ip`. Raises NoNamespaces, which says what it did not do."""
    try:
        subprocess.run(["ip", *words], capture_output=True, check=True, text=True)
    except FileNotFoundError as error:
        raise NoNamespaces("there is no `ip` command") from error
    except subprocess.CalledProcessError as error:
        raise NoNamespaces(f"`ip {' '.join(words)}`: {error.stderr.strip()}") from error


def delete_namespace(name: str) -> None:
    """Nothing happens when there is none."""
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
