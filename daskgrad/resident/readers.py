"""Readers: what evaluations use does not change before they have ended."""

import contextlib
import threading
from collections.abc import Iterator


class Readable:
    """Something that optimisers change, and that evaluations read; errors call it ``what``."""

    def __init__(self) -> None:
        self._readers = 0
        self._lock = threading.RLock()  # it may stand at several places of a pytree

    @property
    def what(self) -> str:
        raise NotImplementedError

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody changes it meanwhile."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    @contextlib.contextmanager
    def without_readers(self) -> Iterator[None]:
        """No evaluation begins meanwhile; RuntimeError if one is under way."""
        with self._lock:
            if self._readers:
                raise RuntimeError(
                    f"a sum that uses {self.what} is being evaluated; update it when that "
                    f"evaluation has ended"
                )
            yield
