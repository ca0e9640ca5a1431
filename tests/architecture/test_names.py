"""One name, one thing: a name stands twice in `broker` only for one concept on two layers."""

import ast
from collections import defaultdict
from pathlib import Path

import broker.client
from tests.architecture.tree import sources, tree

PUBLIC_NAMES_MAX = 45
"""What an editor offers after `from broker.client import`."""

MODULES = {
    "barrier": "the rule (core), the values (model), the handle of a program (client)",
    "batch": "the model's, and the client's view of one that landed or was read",
    "broadcast": "the value (model), and the calls of a program (client)",
    "collection": "the value (model), and its commands (cli)",
    "consumer_group": "the values (model), and the calls of a program (client)",
    "consumption": "the actor that pauses it (coordinator), and its commands (cli)",
    "cursors": "the actor that keeps them (timesync), and their commands (cli)",
    "message": "as the write path sees one (model), as a program does (client)",
    "messages": "one a package: what its actors can be told or asked",
    "named_cursor": "the rule (core), and the values (model)",
    "scanner": "the two ends of a reader: the actor (node), the iterator (client)",
    "stage": "the values (model), the handle of a program (client)",
    "tree": "one a package: how its actors are supervised",
    "txn": "the values (model), the handle of a program (client)",
    "wal": "the port (ports), and the commands that look into log files (cli)",
}
"""Each basename that stands more than once, with the reason."""

CLASSES = {
    "Appended": "where a message landed: in the write path (model), in a program (client)",
    "Barrier": "the rule (core), and the handle of a program (client)",
    "BatchCommitted": "the outcome of a commit (model), and its answer in a program (client)",
    "Broadcasted": "the outcome of a broadcast (model), and its answer in a program (client)",
    "Damage": "a damaged place (model), and as a program is shown it (client)",
    "OutOfRange": "the error of a log (ports), and the one that a program gets (client)",
    "Scanner": "the two ends of a reader: the actor (node), the iterator (client)",
}
"""Each public class name that stands more than once, with the reason."""


def test_a_module_name_stands_twice_only_for_one_concept_on_two_layers() -> None:
    places = defaultdict(list)
    for name in sources():
        if name.startswith("broker/") and not name.endswith("__init__.py"):
            places[Path(name).stem].append(name)
    doubled = {stem: names for stem, names in places.items() if len(names) > 1}
    assert not doubled.keys() - MODULES.keys(), {it: doubled[it] for it in doubled.keys() - MODULES}
    assert not MODULES.keys() - doubled.keys(), "stands once by now: strike it off the list"


def test_a_class_name_stands_twice_only_for_one_concept_on_two_layers() -> None:
    places = defaultdict(list)
    for name in sources():
        if name.startswith("broker/"):
            for node in tree(name).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name)
    doubled = {kind: names for kind, names in places.items() if len(names) > 1}
    assert not doubled.keys() - CLASSES.keys(), {it: doubled[it] for it in doubled.keys() - CLASSES}
    assert not CLASSES.keys() - doubled.keys(), "stands once by now: strike it off the list"


def test_the_client_shows_no_more_names_than_a_person_reads() -> None:
    assert len(broker.client.__all__) <= PUBLIC_NAMES_MAX
