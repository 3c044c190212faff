"""Travel: whether a pullback that leaves its process takes its tape along, and how.

Otherwise it is traced again, with the same bits. Measurements of the first trace decide. Loading a
pullback runs none of the user's code and cannot fail: a task result that cannot be loaded would
hang Dask's cluster.
"""

import collections
import contextlib
import io
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import cloudpickle

from daskgrad.autodiff.values.descriptions import is_number
from daskgrad.autodiff.values.memory import Sealed

CONFIG = "daskgrad.pullbacks"  # the key of the policy in Dask's configuration


class Measured(NamedTuple):
    """The cost of a tape: bytes of its arrays, its operations, and the seconds of tracing."""

    nbytes: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class PullbackPolicy:
    """Decides whether a pullback that moves takes its tape along, and if a new tape is kept.

    A pullback that Dask moves to another worker, or spills to disk, takes its tape along, or leaves
    it behind and its model runs again. The derivatives have the same bits either way. Set a policy
    for the evaluations that begin within a block::

        with dask.config.set({"daskgrad.pullbacks": dg.PullbackPolicy(disk_rate=2e9)}):
            dg.grad(objective)(x)

    or derive a class with your own ``sends`` and ``keeps``, which is sent to the workers; a
    ``tape`` has ``nbytes``, ``steps`` and ``seconds``. If ``sends`` raises, the tape is left
    behind; an error in ``keeps`` is an error of the backward pass. Models are always traced again
    if their tapes cannot be sent: if these hold locks, generators or files, or are JAX's or
    PyTorch's.

    Parameters
    ----------
    pack_seconds, step_seconds:
        seconds to pack and unpack any tape, and for each recorded operation. The defaults were
        measured.
    network_rate, disk_rate:
        bytes per second from one worker to another, and to a disk and back. The defaults are the
        rate that Dask's scheduler assumes for a network, and a rate measured on a local disk.
    unseen_bytes:
        bytes of tapes that a process may keep after it traced their models again, for further calls
        of a ``vjp`` pullback; Dask's memory limits do not count them.

    Raises
    ------
    TypeError
        if a field is not a number.
    ValueError
        if a field is negative, or a rate is zero.

    Examples
    --------
    >>> policy = dg.PullbackPolicy(network_rate=1e9)  # bytes a second
    >>> with dask.config.set({"daskgrad.pullbacks": policy}):
    ...     dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    array([2., 2., 2.])
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
        """True if sending a tape takes less time than running its model again."""
        rate = self.disk_rate if to_disk else self.network_rate
        packing = self.pack_seconds + self.step_seconds * tape.steps
        return packing + tape.nbytes / rate < tape.seconds

    def keeps(self, tape: Measured, unseen: int) -> bool:
        """True if a process keeps a new tape beside ``unseen`` bytes of others."""
        return unseen + tape.nbytes <= self.unseen_bytes


def require_amount(name: str, amount: Any) -> None:
    is_rate = name.endswith("_rate")
    least = "a positive number" if is_rate else "a number, zero or more"
    demand = f"{name} of a dg.PullbackPolicy must be {least}; found {amount!r}"
    if not is_number(amount):
        raise TypeError(demand)
    if not amount >= 0 or (amount == 0 and is_rate):
        raise ValueError(demand)


DEFAULT = PullbackPolicy()


def sent(policy: Any) -> Sealed | None:
    """A policy as it travels with tasks; None for the default policy."""
    if policy is None:
        return None
    if not isinstance(policy, PullbackPolicy):
        raise TypeError(
            f"the configuration {CONFIG!r} must be a dg.PullbackPolicy; found {policy!r}"
        )
    return None if policy == DEFAULT else Sealed(cloudpickle.dumps(policy))


# The policy of the current task, as it was sent; None for the default policy.
CURRENT: ContextVar[Sealed | None] = ContextVar("the policy of this evaluation", default=None)

current = CURRENT.get


def loaded(sent: Sealed | None) -> PullbackPolicy:
    return DEFAULT if sent is None else sent.load()


_TO_DISK: ContextVar[bool] = ContextVar("what is pickled goes to disk", default=False)


@contextlib.contextmanager
def spilling() -> Iterator[None]:
    """A context in which pickles are written to a disk; elsewhere they go to other processes."""
    token = _TO_DISK.set(True)
    try:
        yield
    finally:
        _TO_DISK.reset(token)


class Unseen:
    """Counts the bytes of this process's tapes that Dask does not know of."""

    def __init__(self) -> None:
        self._nbytes = 0
        self._gone: collections.deque[int] = collections.deque()  # garbage, from any thread
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            while self._gone:
                self._nbytes -= self._gone.popleft()
            return self._nbytes

    def admits(self, pullback: Any, tape: Measured) -> bool:
        """Whether the current policy keeps a pullback that was traced again; if so, counts it."""
        policy = loaded(current())
        with self._lock:
            if not policy.keeps(tape, self.nbytes):
                return False
            self._nbytes += tape.nbytes
        weakref.finalize(pullback, self._gone.append, tape.nbytes).atexit = False
        return True


unseen = Unseen()


# -------------------------------------------------------------------------------------------------
# Packing: tapes as bytes, which are unpickled when the tape is first used.

logger = logging.getLogger("daskgrad")


class Travelling:
    """A pullback that leaves its process with its tapes packed, or empty, as the policy decides.

    Without arguments, a subclass is empty. It defines its ``tapes``, their measurements, its
    ``contents``, and how to ``restore`` it from these at its first use elsewhere.
    """

    __slots__ = ("__weakref__", "_packed", "_policy")

    is_empty: bool
    tapes: Callable[[], Sequence[Any]]
    contents: Callable[[], tuple[Any, ...]]
    measured: Callable[[], Measured]
    restore: Callable[[tuple[Any, ...]], None]

    def __init__(self) -> None:
        self._packed: Sealed | None = None
        self._policy = current()

    @classmethod
    def arrived(cls, packed: Sealed, policy: Sealed | None) -> "Travelling":
        """A pullback with the tapes that came along."""
        pullback = cls()
        pullback._packed, pullback._policy = packed, policy
        return pullback

    def __reduce__(self) -> tuple:
        kind, packed = type(self), self._packed
        if packed is None and not self.is_empty:
            packed = self._pack()
        return (kind, ()) if packed is None else (kind.arrived, (packed, self._policy))

    def _pack(self) -> Sealed | None:
        """The contents as bytes; ``None`` if the models are to run again. Never raises, as Dask's
        cluster would hang."""
        picklers: set[Any] = {getattr(tape, "pickler", None) for tape in self.tapes()}
        if len(picklers) != 1 or None in picklers:
            return None
        try:
            if not loaded(self._policy).sends(self.measured(), to_disk=_TO_DISK.get()):
                return None
            return seal(self.contents(), *picklers)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            logger.info("a tape stays behind, and its model is traced again: %s", text)
            return None

    def unpack(self) -> None:
        """Unpacks the tapes that came along; if that fails, the pullback is empty."""
        packed = self._packed  # another thread may set it to None
        contents = None if packed is None else unpack(packed)
        if contents is not None:
            self.restore(contents)
        self._packed = None


def seal(contents: Any, pickler: Any) -> Sealed:
    file = io.BytesIO()
    buffers: list[Any] = []
    pickler(file, protocol=5, buffer_callback=buffers.append).dump(contents)
    return Sealed(file.getvalue(), buffers)


def unpack(packed: Sealed) -> Any:
    """The contents; ``None`` if they cannot be loaded here."""
    try:
        return packed.load()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        logger.info("a tape that arrived cannot be loaded: %s", text)
        return None
