"""Kills one actor for whoever practises for bad days: only where the server allows it.

Owns the refusals. What follows a kill is the business of the actor's supervisor.
"""

from actors import NoSuchActor, NotRunning
from broker.edge.tidemark.process_view import ProcessView
from broker.model.failure import Refused, StreamingCode


def kill_actor(view: ProcessView, path: str, term: int) -> int:
    """The term of the incarnation that was killed; `term` 0 stands for whoever is there.

    Raises Refused, with nobody killed: UNRECOVERABLE when chaos is not allowed, or for the root;
    INVALID_ARGUMENT for a path where nobody lives; UNMATCHED_CHANNEL_TERM when another incarnation
    lives there by now; INNER while it waits for its restart.
    """
    if not view.chaos_allowed:
        cause = "this server kills nobody; start it with --allow-chaos to let it"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    try:
        found = view.tree.find(path)
    except NotRunning as error:
        raise Refused(StreamingCode.INNER, f"{error}; try again") from error
    except NoSuchActor as error:
        cause = f"there is no actor at {path!r}; `tidemark actors --all` names all paths"
        raise Refused(StreamingCode.INVALID_ARGUMENT, cause) from error
    if path.count("/") == 1:
        cause = f"{path} holds up the whole process; stop the server instead"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    if term not in (0, found.term):
        cause = f"{path} is at term {found.term}, not {term}; nobody was killed"
        raise Refused(StreamingCode.UNMATCHED_CHANNEL_TERM, cause)
    view.tree.kill(path)
    return found.term
