"""Several owners of one log, as threads of which one runs at a time: a seed says which.

A step is anything that an owner asks the disk for, so each race is one interleaving of two programs
as the disk could see it, and the same seed gives the same race again.
"""

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

STUCK_S = 60.0
"""A race takes milliseconds; this is against hanging."""

QUIET = frozenset({"close", "size"})
"""Not seen by anybody else, so there is nothing to interleave."""


class Turns:
    """Runs owners in turn. Never lets two run at once."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._gates: dict[str, threading.Semaphore] = {}
        self._alive: list[str] = []
        self._errors: list[BaseException] = []
        self._over = threading.Event()
        self.steps = 0

    def run(self, owners: Mapping[str, Callable[[], None]]) -> None:
        """Until all have ended; raises the first error of any."""
        self._alive = sorted(owners)
        self._gates = {name: threading.Semaphore(0) for name in owners}
        threads = [
            threading.Thread(target=self._live, args=(owners[name],), name=name, daemon=True)
            for name in self._alive
        ]
        for thread in threads:
            thread.start()
        self._gates[self._chance.choice(self._alive)].release()
        assert self._over.wait(STUCK_S), f"stuck after {self.steps} steps"
        for thread in threads:
            thread.join(STUCK_S)
        if self._errors:
            raise self._errors[0]

    def step(self) -> None:
        """An owner is about to use the disk; whoever else calls is not part of the race."""
        name = threading.current_thread().name
        if name not in self._alive:
            return
        self.steps += 1
        following = self._chance.choice(self._alive)
        if following != name:
            self._gates[following].release()
            self._gates[name].acquire()

    def _live(self, owner: Callable[[], None]) -> None:
        name = threading.current_thread().name
        self._gates[name].acquire()
        try:
            owner()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._errors.append(error)
        self._alive.remove(name)
        if self._alive:
            self._gates[self._chance.choice(self._alive)].release()
        else:
            self._over.set()


class SharedDisk:
    """The files port in front of another: each use of it is a step of the race."""

    def __init__(self, inner: Any, turns: Turns) -> None:
        self._inner = inner
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def use(*args: Any, **kwargs: Any) -> Any:
            if name not in QUIET:
                self._turns.step()
            found = method(*args, **kwargs)
            return SharedDisk(found, self._turns) if name == "open" else found

        return use
