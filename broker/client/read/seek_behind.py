"""The id behind a tick from which a read misses nothing, or the error that something is missing."""

from broker.client.cluster.offsets import Offsets
from broker.client.start_time import refuse_removed
from broker.model.ids import MessageId


async def seek_behind(offsets: Offsets, name: str, after: int) -> MessageId:
    """The first id with a tick > `after`. Raises OutOfRange when retention removed such messages.

    From that id on the server notices what is removed before it is read.
    """
    found = await offsets.seek(name, after + 1)
    # Asked after the seek: what is removed between the two would be passed over in silence.
    refuse_removed(name, after, (await offsets.describe([name]))[name])
    return found
