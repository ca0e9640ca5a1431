"""Reports a write that was taken for a repeat of a committed one, and so added nothing.

A repeat must be harmless. But when two writes share a name by mistake, the second one's rows are
missing, and only their author can tell the two cases apart. So a repeat that no restart explains is
a warning.
"""

import logging
from typing import Final

from broker.client import BatchCommitted

CODE: Final = "[TIDEMARK_REPEAT]"
log = logging.getLogger("tidemark.spark")


def tell(done: BatchCommitted, batch: int, *, of_stream: bool) -> None:
    """Log whether a commit was a repeat.

    `done`: the result of committing `batch`. `of_stream`: the write belongs to a streaming query,
    which repeats batches when it restarts. Silent when everything staged is visible: then only a
    reply was lost.
    """
    if not done.left_out:
        return
    if of_stream and done.batch == batch:
        log.info("micro-batch %d of %s was already committed before the restart", batch, done.app)
    elif of_stream:
        log.warning(
            "%s nothing of micro-batch %d was added: app %r has committed all up to %d. A query"
            " begins at 0 again with a new checkpointLocation, and goes back with an old copy of"
            " one; two queries must not share an appId. If these rows are to be written, give the"
            " query another appId",
            *(CODE, batch, done.app, done.batch),
        )
    else:
        log.warning(
            "%s nothing of this write was added: app %r has committed batch %d%s before. If this is"
            " the same write, tried again, all is well. If it is another one, give it a batchId"
            " above %d, or an appId of its own, also where several writes of one foreachBatch share"
            " a batchId",
            *(CODE, done.app, done.batch, _where(done), done.batch),
        )


def _where(done: BatchCommitted) -> str:
    return f" (to {', '.join(sorted(done.ticks))})" if done.ticks else ""
