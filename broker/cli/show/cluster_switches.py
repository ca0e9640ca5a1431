"""Pauses and resumes consumption, and raises the streaming version."""

from broker.cli.session import with_client
from broker.cli.show.output import show
from broker.client import Client
from broker.core.cluster.assignment import BROADCAST_VERSION


def pause_consumption(server: str, *, paused: bool) -> None:
    """Pause or resume consumption, and print which."""

    async def ask(client: Client) -> None:
        await (client.admin.pause_consumption() if paused else client.admin.resume_consumption())

    with_client(server, ask)
    show("new consumers wait until consumption is resumed" if paused else "consumption is resumed")


def show_streaming(server: str, at_least: int) -> None:
    """Print the streaming version, after raising it to `at_least`."""

    async def ask(client: Client) -> int:
        return await client.admin.streaming_version(at_least)

    version = with_client(server, ask)
    show(f"streaming version {version}: {_served(version)}")


def _served(version: int) -> str:
    if not version:
        return "channels are read-only, and broadcasts wait"
    if version < BROADCAST_VERSION:
        return f"channels take appends, and broadcasts wait for version {BROADCAST_VERSION}"
    return "channels take appends"
