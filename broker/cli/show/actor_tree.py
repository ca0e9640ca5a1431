"""What `tidemark actors` prints: the tree of actors, one line per actor or per kind."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.text import Text
from rich.tree import Tree

from broker.cli.session import fail, with_client
from broker.cli.show.figures import count_text
from broker.cli.show.output import print_json, show
from broker.client import Client
from broker.client.cluster import ActorInfo
from broker.core.cluster.actor_kinds import kind_of, shape_of

ODD_MAX = 20
"""Number of actors named below the summary, because they do not run or were restarted."""


def show_actors(server: str, path: str, *, as_json: bool, each: bool) -> None:
    """Print the tree below `path`."""
    if path and not path.startswith("/"):
        fail(f"{path!r} is not a path; paths begin with /root or /node-N")

    async def ask(client: Client) -> list[ActorInfo]:
        return await client.admin.actors(path)

    found = with_client(server, ask)
    if as_json:
        return print_json([{**_fields(it)} for it in found])
    if not found:
        fail(f"there is no actor at {path}; `tidemark actors` shows the tree")
    return show(*(_whole(found) if each else summary_of(found)))


def kill_actor(server: str, path: str, term: int) -> None:
    """Kill the actor, and print the term that it had."""

    async def kill(client: Client) -> int:
        return await client.admin.kill_actor(path, term=term)

    show(f"killed {path} of term {with_client(server, kill)}")


def _fields(it: ActorInfo) -> dict[str, object]:
    return {name: getattr(it, name) for name in ActorInfo.__dataclass_fields__}


def _whole(found: Sequence[ActorInfo]) -> list[Tree]:
    return trees_of((it.path, _label(it)) for it in found)


def summary_of(found: Sequence[ActorInfo]) -> list[Tree | Text]:
    """One line for all actors of a kind with the same place in the tree.

    Below it the actors that a sum would hide: those that do not run, or were restarted.
    """
    kinds: dict[str, list[ActorInfo]] = {}
    for it in sorted(found, key=lambda it: shape_of(it.path)):
        kinds.setdefault(shape_of(it.path), []).append(it)
    trees = trees_of((shape, _kind_label(alike)) for shape, alike in kinds.items())
    odd = [it for it in found if it.state != "running" or it.restarts]
    lines = [_odd_label(it) for it in odd[:ODD_MAX]]
    if len(odd) > ODD_MAX:
        lines.append(Text(f"and {len(odd) - ODD_MAX} more; --all shows them"))
    if lines:
        lines.insert(0, Text("\nNot running, or restarted:"))
    return [*trees, *lines]


def trees_of(labels: Iterable[tuple[str, Text]]) -> list[Tree]:
    """Trees of labels by path. Parents must come before their children."""
    branches: dict[str, Tree] = {}
    roots: list[Tree] = []
    for path, label in labels:
        parent = path.rpartition("/")[0]
        if parent in branches:
            branches[path] = branches[parent].add(label)
        else:
            branches[path] = Tree(label)
            roots.append(branches[path])
    return roots


def _odd_label(it: ActorInfo) -> Text:
    label = _state(it, it.path).append(f"  restarts {it.restarts}", style="red")
    why = it.extra.get("last_error", "")
    return label.append(f"  last: {why}" if why else "")


def _state(it: ActorInfo, name: str) -> Text:
    label = Text(name, style=_style(it)).append(f"  term {it.term}", style="dim")
    return label.append(f"  {it.state}", style="green" if it.state == "running" else "red")


def _label(it: ActorInfo) -> Text:
    label = _state(it, it.path.rpartition("/")[2])
    if it.kind == "actor":
        label.append(f"  mailbox {it.mailbox_depth}/{it.mailbox_bound}  handled {it.handled}")
    label.append(f"  restarts {it.restarts}", style="red" if it.restarts else "dim")
    extra = "  ".join(f"{key} {value}" for key, value in sorted(it.extra.items()))
    return label.append(f"  {extra}", style="dim") if extra else label


def _kind_label(alike: Sequence[ActorInfo]) -> Text:
    """The range of terms, counts of states, the fullest mailbox, sums of the rest."""
    label = Text(*_name(alike))
    terms = sorted({it.term for it in alike})
    label.append(f"  terms {terms[0]}..{terms[-1]}" if terms[1:] else f"  term {terms[0]}", "dim")
    states = Counter(it.state for it in alike)
    for state, count in sorted(states.items()):
        shown = state if count == len(alike) else f"{count} {state}"
        label.append(f"  {shown}", style="green" if state == "running" else "red")
    if alike[0].kind == "actor":
        fullest = max(alike, key=lambda it: it.mailbox_depth)
        label.append(f"  mailbox {fullest.mailbox_depth}/{fullest.mailbox_bound}")
        label.append(f"  handled {count_text(sum(it.handled for it in alike))}")
    restarts = sum(it.restarts for it in alike)
    return label.append(f"  restarts {restarts}", style="red") if restarts else label


def _name(alike: Sequence[ActorInfo]) -> tuple[str, str]:
    path = alike[0].path
    name = "node process" if path.startswith("/node-") and "/" not in path[1:] else kind_of(path)
    return (name if len(alike) == 1 else f"{name} x{len(alike)}"), _style(alike[0])


def _style(it: ActorInfo) -> str:
    return "bold" if it.kind == "supervisor" else ""
