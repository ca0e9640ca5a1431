"""Says when a write was taken for one that had been committed before, and so added nothing.

That is what makes a repeat harmless, and what loses rows when two writes share a name by mistake;
nobody but their author can tell these apart. Next: broker/spark/sink/staged_rows.py
"""

import logging
from typing import Final

from broker.client import BatchCommitted

CODE: Final = "[TIDEMARK_REPEAT]"
log = logging.getLogger("tidemark.spark")


def tell(done: BatchCommitted, batch: int, *, of_stream: bool) -> None:
    """`done`: what came of committing `batch`; `of_stream`: a query that is started again does it.

    Silent where all that was staged is there: then only an answer had been lost.
    """
    if not done.left_out:
        return
    if of_stream and done.batch == batch:
        log.info("micro-batch %d of %s had been committed before a restart", batch, done.app)
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
