"""Opens a client and makes sure that nothing of it is left when the program leaves.

It owns the task group in which everything of one client runs.
Next: broker/client/client.py
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus

from broker.client.append.batch_producer import Gathering
from broker.client.append.outbox import SendLimits
from broker.client.client import Client
from broker.client.net.deadlines import Deadlines
from broker.client.net.network import Network

DEFAULT_SERVER = "127.0.0.1:19531"
DEFAULT_DEADLINES = Deadlines()
DEFAULT_LIMITS = SendLimits()
DEFAULT_GATHERING = Gathering()


@asynccontextmanager
async def connect(
    server: str = DEFAULT_SERVER,
    *,
    cluster: str = "by-dev",
    deadlines: Deadlines = DEFAULT_DEADLINES,
    limits: SendLimits = DEFAULT_LIMITS,
    gathering: Gathering = DEFAULT_GATHERING,
    resend: bool = True,
) -> AsyncIterator[Client]:
    """A client of the cluster that `server` (HOST:PORT) belongs to.

    Raises BadAddress when it is no HOST:PORT, and ConnectionLost at once when nobody listens there;
    later losses are mended by the client itself. `limits` bound what waits to be appended, for each
    pchannel. `gathering` says how appends become batches. With `resend` an append whose stream
    broke, or whose writer failed, is sent again, and written once: batches are numbered, and the
    log knows the numbers. Only a message of Milvus's own kinds (another `type`, `version`, `header`
    or a barrier) may be written twice. Without `resend` it fails at once as OutcomeUnknown.

    Leaving waits `close_s` for answers still on their way, and leaves nothing running.
    """
    network = Network(
        server,
        cluster=cluster,
        open_s=deadlines.open_s,
        silence_s=deadlines.silence_s,
        spread=random.Random(),
    )
    failure: Exception | SystemExit | None = None
    async with anyio.create_task_group() as tasks:
        inside = await tasks.start(_inside)
        client = Client(network, inside, deadlines, (limits, gathering), resend=resend)
        inside.start_soon(network.assignments.follow)
        try:
            await network.assignments.ready(deadlines.connect_s)
            yield client
            await client.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below, with no group round it
            failure = error
        finally:
            client.abort()
    if failure is not None:
        raise failure


async def _inside(*, task_status: TaskStatus[TaskGroup]) -> None:
    """Everything of one client runs in here, so that ending it does not end the program's task."""
    async with anyio.create_task_group() as tasks:
        task_status.started(tasks)
        await anyio.sleep_forever()
