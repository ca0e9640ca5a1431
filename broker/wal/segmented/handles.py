"""A bounded set of open files and loaded indexes, shared by the readers of one log."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The `limit` values used last. What is dropped lives on while a reader holds it."""

    def __init__(self, limit: int, make: Callable[[K], V]) -> None:
        self._limit, self._make = limit, make
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V:
        """The value, made when it is not there; errors of making it are the caller's."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = self._make(key)
        self.put(key, made)
        return made

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)

    def find(self, key: K) -> V | None:
        with self._lock:
            return self._values.get(key)

    def drop(self, key: K) -> None:
        with self._lock:
            self._values.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)
