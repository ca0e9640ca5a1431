"""Opens a client, and ends all its tasks and connections when the block is left."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus

from broker.client.append.batch_producer import Gathering
from broker.client.append.outbox import SendLimits
from broker.client.client import Client
from broker.client.errors import BadTlsFiles, BadToken
from broker.client.net.deadlines import Deadlines
from broker.client.net.network import Network
from broker.transport.tls import BadTls, ClientTls, Tls

DEFAULT_SERVER = "127.0.0.1:19531"
TOKEN_LENGTH_MAX = 8192
DEFAULT_DEADLINES = Deadlines()
DEFAULT_LIMITS = SendLimits()
DEFAULT_GATHERING = Gathering()


@asynccontextmanager
async def connect(  # noqa: PLR0913 - each is an option of the program, by its name
    server: str = DEFAULT_SERVER,
    *,
    cluster: str = "by-dev",
    deadlines: Deadlines = DEFAULT_DEADLINES,
    limits: SendLimits = DEFAULT_LIMITS,
    gathering: Gathering = DEFAULT_GATHERING,
    resend: bool = True,
    tls: Tls | None = None,
    token: str = "",
) -> AsyncIterator[Client]:
    """Connect to the cluster that `server` belongs to: HOST:PORT, or several with commas.

        async with connect("127.0.0.1:19531", deadlines=Deadlines(append_s=30)) as log:
            await log.append("flights", b"...")

    Raises BadAddress when `server` is not HOST:PORT, and ConnectionLost at once when nothing
    listens there; the client reconnects after later losses. Of coordinators that stand by for each
    other give all addresses: the client follows the leader, which one that stands by names.
    `cluster`: a server of another cluster refuses every call with OperationIgnored. `limits` bounds
    what waits to be appended to each pchannel; `gathering` sets how appends become batches.

    With `resend` an append whose stream broke is sent again and stored once, because the log
    remembers the numbers of batches; only a message of Milvus's own kinds (another `type`,
    `version`, `header`, or a barrier) may be stored twice. Without it, OutcomeUnknown is raised.

    `tls` connects with TLS, to every server of the cluster: `Tls(ca="ca.pem")`, with `cert` and
    `key` where servers ask clients for a certificate. Raises BadTlsFiles for files that cannot be
    used, and NotTrusted when a server's certificate is not trusted. A server that does not accept
    this client's certificate ends the connection: ConnectionLost, which names that as a cause.

    `token` proves who calls, where the broker asks; use it with TLS. Raises BadToken for text that
    is no token, and NotAuthenticated when the broker does not know it.

    Leaving the block waits up to `Deadlines.close_s` for pending appends, then ends everything.
    """
    network = Network(
        server,
        cluster=cluster,
        deadlines=deadlines,
        spread=random.Random(),
        tls=_client_tls(tls),
        token=_checked_token(token),
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
            # `_inside` sleeps until it is cancelled: the block would never end.
            client.abort()
    if failure is not None:
        raise failure


def _checked_token(token: str) -> str:
    # The text is in no error: it is a secret, even if it is not a whole one.
    if len(token) > TOKEN_LENGTH_MAX or not token.isprintable() or not token.isascii():
        raise BadToken(
            f"a token of {len(token)} characters cannot be sent: it has one line of at most"
            f" {TOKEN_LENGTH_MAX} letters, digits and signs; was the file read with its newline?"
        )
    return token


def _client_tls(tls: Tls | None) -> ClientTls | None:
    try:
        return None if tls is None else ClientTls(tls)
    except BadTls as error:
        raise BadTlsFiles(str(error)) from None


async def _inside(*, task_status: TaskStatus[TaskGroup]) -> None:
    """Hold the task group of the client, apart from that of the caller.

    So that cancelling the client's tasks does not cancel the task of the program.
    """
    async with anyio.create_task_group() as tasks:
        task_status.started(tasks)
        await anyio.sleep_forever()
