"""Models and their calls, as they travel to the workers."""

import functools
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.libraries.by_hand import WithGradient
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.digests import VERSION, Digests, differing, digests_of
from daskgrad.autodiff.values.memory import Sealed, out_of_band
from daskgrad.autodiff.values.pickling import digest
from daskgrad.autodiff.values.protection import protect

KEEP = ("auto", "gradient", "tape", "recompute")


class Operator(NamedTuple):
    """Facts about an elementwise model, for passes over a graph that do not run it.

    ``signs``: the model is the sum of its operands with these signs. ``linear_in``: numbers of
    operands; the model is linear in each if the others are constant.
    """

    signs: tuple[int, ...] = ()
    linear_in: tuple[int, ...] = ()

    def is_linear(self, are_active: Sequence[bool]) -> bool:
        """Whether the tangent needs the tangents of the active operands alone, not their values."""
        active = [number for number, is_active in enumerate(are_active) if is_active]
        return bool(self.signs) or (len(active) == 1 and active[0] in self.linear_in)


class Model(NamedTuple):
    """A function, the way to differentiate it, and facts about it if it is an operator."""

    fun: Callable[..., Any]
    name: str
    backend: Any = "autograd"  # a name; on a worker also a registered backend that was sent
    keep: str = "auto"
    operator: Operator | None = None

    def sent(self) -> "Model":
        """The model with its function as bytes."""
        if isinstance(self.fun, SentFunction):
            return self
        return self._replace(fun=SentFunction.of(self), backend=registry.sent(self.backend))

    def __reduce__(self) -> tuple:
        *fields, operator = self.sent()
        return Model, (*fields, *(() if operator is None else (operator,)))


class SentFunction(Sealed):
    """A model's function, loaded at its first call: if loading fails, that task alone fails.

    ``source``: the model's name, the version of Python, and digests of the code that goes by name.
    """

    __slots__ = ("_digest", "_lock", "backend", "source")

    def __init__(
        self, data: bytes, backend: Any, source: tuple | None = None, digest: bytes | None = None
    ):
        super().__init__(data)
        self.backend = backend
        self.source = source
        self._digest = digest
        self._lock = threading.Lock()

    @classmethod
    def of(cls, model: Model) -> "SentFunction":
        data = registry.load(model.backend).dumps(model.fun)
        digests = digests_of(plain_function(model.fun), data)
        source = model.name, VERSION, digests
        return cls(data, registry.sent(model.backend), source)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return SentFunction, (out_of_band(self.data, protocol), self.backend, self.source)

    @property
    def daskgrad_digest(self) -> bytes:
        """The function's key for a backend that keeps compiled functions."""
        if self._digest is None:
            self._digest = digest(bytes(self.data) + repr(self.source).encode())
        return self._digest

    def unloaded(self) -> "SentFunction":
        return SentFunction(self.data, self.backend, self.source, self.daskgrad_digest)

    def load(self) -> Callable:
        """The function, one for all threads."""
        if self.loaded is None:
            with self._lock:
                return super().load()
        return self.loaded

    def _unpickle(self) -> Callable:
        fun = registry.load(self.backend).loads(self.data)
        if self.source is not None:
            require_source(*self.source)
        return fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.load()(*args, **kwargs)


def require_source(name: str, version: Any, digests: Digests) -> None:
    """Raises if this process has imported a module before it was edited."""
    place = differing(digests) if version == VERSION else None
    if place is not None:
        raise RuntimeError(
            f"model {name!r} uses {'.'.join(place)}, for which this worker has other code than the "
            f"client: it imported the module {place[0]!r} before it was edited, or from another "
            f"file. Restart the workers (client.restart()) or give them the new file "
            f"(client.upload_file), or send the module's functions along "
            f"(cloudpickle.register_pickle_by_value)"
        )


class Call(NamedTuple):
    """The arguments of one call: a pytree of constants with holes where the inputs go.

    ``holes`` are pairs (position among the leaves, number of the input). ``place``: file and line,
    of NumPy between models.
    """

    leaves: tuple[Any, ...]
    structure: Structure
    holes: tuple[tuple[int, int], ...]
    place: tuple[str, int] | None = None

    def arguments(self, inputs: Sequence[Any]) -> tuple[tuple, dict]:
        """The arguments, with the inputs unprotected."""
        return self.structure.unflatten(self.filled(inputs))

    def arguments_of_run(self, inputs: Sequence[Any], are_writeable: bool) -> tuple[tuple, dict]:
        """The arguments of one run: inputs are read-only, and random generators are copies."""
        return self.structure.unflatten(protect(self.filled(inputs), are_writeable))

    def filled(self, inputs: Sequence[Any]) -> list[Any]:
        """The leaves of the arguments, where each input is one leaf."""
        leaves = list(self.leaves)
        for position, number in self.holes:
            leaves[position] = inputs[number]
        return leaves


def plain_function(fun: Any) -> Callable:
    """The function that the user wrote, out of its wrappers; loads nothing."""
    if isinstance(fun, SentFunction):
        return fun if fun.loaded is None else plain_function(fun.loaded)
    if type(fun) is WithGradient:
        return plain_function(fun.fun)
    inner = getattr(fun, "model", None)
    return plain_function(inner.fun) if isinstance(inner, Model) else fun


def identity(model: Model) -> tuple[str, Any]:
    """A key that tells models of one name apart, and stays if a function is defined again."""
    fun: Any = plain_function(model.fun)
    while isinstance(fun, functools.partial):
        fun = fun.func
    return model.name, getattr(fun, "__code__", type(fun))


_RUNNING: ContextVar[bool] = ContextVar("a model of daskgrad is running", default=False)

inside_model = _RUNNING.get  # whether a model runs in this thread, so that nothing is recorded


def load(model: Model) -> None:
    """Loads a function that was sent, before it counts as running: imports may record nodes."""
    if isinstance(model.fun, SentFunction):
        model.fun.load()


def run_as_model(fun: Callable, *args: Any) -> Any:
    """Calls a function that runs a model."""
    before = _RUNNING.get()
    try:
        _RUNNING.set(True)  # inside "try": Ctrl-C may come as it returns
        return fun(*args)
    finally:
        _RUNNING.set(before)


def run(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a call."""
    load(model)
    backend = registry.load(model.backend)
    arguments = call.arguments_of_run(inputs, registry.finds_writes(backend))
    return run_as_model(backend.run, model.fun, *arguments)


def described_arguments(call: Call, inputs: Sequence[Any]) -> list[str]:
    args, kwargs = call.arguments(inputs)
    return [*map(describe, args), *[f"{name}={describe(value)}" for name, value in kwargs.items()]]
