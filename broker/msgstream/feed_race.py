"""Waits for the first of several feeds."""

from collections.abc import Callable, Sequence

import anyio

from broker.client.errors import TidemarkError
from broker.msgstream.backends.stream_backend import Feed, FeedStep


async def first_of(feeds: Sequence[Feed], came: Callable[[Feed, FeedStep], None]) -> None:
    """Return once `came` was called, at least once; raises the error of a feed otherwise.

    Nothing is lost when it is cancelled: `came` gets each delivery at the moment it arrives.
    """
    if len(feeds) == 1:
        came(feeds[0], await feeds[0].next())
        return
    errors: list[TidemarkError] = []
    arrived = False

    async def one(feed: Feed) -> None:
        nonlocal arrived
        try:
            delivered = await feed.next()
        except TidemarkError as error:
            errors.append(error)
        else:
            came(feed, delivered)
            arrived = True
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for feed in feeds:
            tasks.start_soon(one, feed)
    if errors and not arrived:
        raise errors[0]  # otherwise the feed raises it again
