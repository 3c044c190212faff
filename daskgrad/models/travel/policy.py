"""Policy: does a pullback that leaves its process take its tape along, or is it traced again?

Decided from what was measured when the model was traced. Both ways give the same bits.
"""

import collections
import contextlib
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import cloudpickle

from daskgrad.values.descriptions import is_number
from daskgrad.values.sealed import Sealed

CONFIG = "daskgrad.pullbacks"  # where Dask's configuration has the policy


class Measured(NamedTuple):
    """What a tape costs: its arrays in bytes, its operations, and the seconds that tracing took."""

    nbytes: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class PullbackPolicy:
    """Decides what happens to a pullback that leaves its process, and to one that was traced again.

    A pullback that Dask moves to another worker, or spills to disk, either takes its tape along or
    leaves it behind, and then its model runs again where the pullback is used. Set a policy for the
    evaluations that begin within a block::

        with dask.config.set({"daskgrad.pullbacks": dg.PullbackPolicy(disk_rate=2e9)}):
            dg.grad(objective)(x)

    or derive a class with other methods, which is sent to the workers; a ``tape`` has ``nbytes``,
    ``steps`` and ``seconds``. Where ``sends`` raises, the tape is left behind; where ``keeps``
    does, that is an error of the backward pass. The derivatives have the same bits whatever is
    decided. Tapes that cannot be sent (they hold locks, generators or files; JAX's and PyTorch's)
    are traced again, and nothing is asked.

    Parameters
    ----------
    pack_seconds, step_seconds:
        what it takes to pack a tape and to unpack it, and this for each operation that it recorded.
        The defaults were measured.
    network_rate, disk_rate:
        bytes a second, from one worker to another, and onto a disk and back. The defaults are what
        Dask's scheduler takes for a network, and what was measured on a local disk.
    unseen_bytes:
        how many bytes of tapes that were traced again a process keeps, for further calls of a
        ``vjp`` pullback; Dask's memory limits know nothing of them.

    Raises
    ------
    TypeError, ValueError
        for what is no number, is negative, or is a rate of zero.
    """

    pack_seconds: float = 5e-4
    step_seconds: float = 1e-4
    network_rate: float = 1e8
    disk_rate: float = 5e8
    unseen_bytes: int = 2**26

    def __post_init__(self) -> None:
        for field in fields(PullbackPolicy):
            require_amount(field.name, getattr(self, field.name))

    def sends(self, tape: Measured, to_disk: bool) -> bool:
        """Whether a tape goes along, or its model runs again: whichever takes less time."""
        rate = self.disk_rate if to_disk else self.network_rate
        packing = self.pack_seconds + self.step_seconds * tape.steps
        return packing + tape.nbytes / rate < tape.seconds

    def keeps(self, tape: Measured, unseen: int) -> bool:
        """Whether a tape that was traced again is kept; ``unseen`` bytes are kept already."""
        return unseen + tape.nbytes <= self.unseen_bytes


def require_amount(name: str, found: Any) -> None:
    asked = f"{name} of a dg.PullbackPolicy is a number; found {found!r}"
    if not is_number(found):
        raise TypeError(asked)
    if not found >= 0 or (found == 0 and name.endswith("_rate")):
        raise ValueError(f"{asked}, which is no amount")


DEFAULT = PullbackPolicy()


def sent(policy: Any) -> Sealed | None:
    """A policy as it travels with tasks; None, the default one, needs not."""
    if policy is None or policy == DEFAULT:
        return None
    if not isinstance(policy, PullbackPolicy):
        raise TypeError(
            f"the configuration {CONFIG!r} must be a dg.PullbackPolicy; found {policy!r}"
        )
    return Sealed(cloudpickle.dumps(policy))


# ------------------------------------------------------------------------- the one that holds here

CURRENT: ContextVar[Sealed | None] = ContextVar("the policy of this evaluation", default=None)


def current() -> Sealed | None:
    """The policy of the task that runs here, as it was sent; ``None`` is the default one."""
    return CURRENT.get()


def loaded(sent: Sealed | None) -> PullbackPolicy:
    return DEFAULT if sent is None else sent.load()


_TO_DISK: ContextVar[bool] = ContextVar("what is pickled goes to disk", default=False)


@contextlib.contextmanager
def spilling() -> Iterator[None]:
    """Within it, what is pickled is written to a disk; elsewhere it goes to another process."""
    token = _TO_DISK.set(True)
    try:
        yield
    finally:
        _TO_DISK.reset(token)


def sends(sent: Sealed | None, tape: Measured) -> bool:
    """Whether a tape that is being pickled goes along."""
    return loaded(sent).sends(tape, to_disk=_TO_DISK.get())


# --------------------------------------------------------------------- what Dask does not know of


class Unseen:
    """The bytes of tapes in this process that Dask does not know of: it counted them as empty."""

    def __init__(self) -> None:
        self._nbytes = 0
        self._gone: collections.deque[int] = collections.deque()  # garbage, in whatever thread
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return self._counted()

    def _counted(self) -> int:
        while self._gone:
            self._nbytes -= self._gone.popleft()
        return self._nbytes

    def admits(self, pullback: Any, tape: Measured) -> bool:
        """Whether the current policy keeps a pullback that was traced again, which then counts."""
        policy = loaded(current())
        with self._lock:
            if not policy.keeps(tape, self._counted()):
                return False
            self._nbytes += tape.nbytes
        weakref.finalize(pullback, self._gone.append, tape.nbytes).atexit = False
        return True


unseen = Unseen()
