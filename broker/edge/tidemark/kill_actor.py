"""Kill one actor, for tests of recovery; only where the server allows it."""

from actors import NoSuchActor, NotRunning
from broker.edge.tidemark.process_view import ProcessView
from broker.model.failure import Refused, StreamingCode


def kill_actor(view: ProcessView, path: str, term: int) -> int:
    """Kill the incarnation at `term`, 0 for the current one, and return its term.

    Raises Refused, and kills nothing: UNRECOVERABLE when chaos is not allowed, and for the root;
    INVALID_ARGUMENT for a path without an actor; UNMATCHED_CHANNEL_TERM when another incarnation
    runs by now; INNER while the actor waits for its restart.
    """
    if not view.chaos_allowed:
        cause = "killing actors is not allowed; start the server with --allow-chaos"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    try:
        found = view.tree.find(path)
    except NotRunning as error:
        raise Refused(StreamingCode.INNER, f"{error}; try again") from error
    except NoSuchActor as error:
        cause = f"there is no actor at {path!r}; `tidemark actors --all` names all paths"
        raise Refused(StreamingCode.INVALID_ARGUMENT, cause) from error
    if path.count("/") == 1:
        cause = f"{path} is the root of the process and cannot be killed; stop the server instead"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    # The caller saw another incarnation; this one may be healthy.
    if term not in (0, found.term):
        cause = f"{path} is at term {found.term}, not {term}; nothing was killed"
        raise Refused(StreamingCode.UNMATCHED_CHANNEL_TERM, cause)
    view.tree.kill(path)
    return found.term
