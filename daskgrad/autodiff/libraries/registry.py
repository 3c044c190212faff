"""Registry: the protocol of backends and their tapes; finds them by name, sends them with models.

A backend is a module, or any object, with the five functions of ``Backend``. A model's ``args`` and
``kwargs`` are pytrees of NumPy arrays, and so is its value, whatever types the library uses
internally. A backend may also have:

``trace_block(block)``
    evaluates the terms of a sum many at a time: it takes a ``TracedBlock``
    (``daskgrad.autodiff.tape.traced_call``) and returns an iterator of lists, which together have
    an entry for each item, in order: its value, one real number, and its gradient, as ``pull`` of
    the cotangent one returns it; or ``None`` if ``trace`` must be called for the item, or a
    ``Pending``, which carries known facts to ``trace``. A ``TermRun`` may stand for a list. Only
    the program and shapes may decide which items get ``None``, never data or the cut of the block:
    the bits of an item must not depend on them. It holds a bounded number of results at a time.
``is_batched(block)``
    tells whether ``trace_block`` evaluates items like the first of a block together, and so quickly
    that nobody need stop in between.
``prepare(fun)``
    called once for many calls, returns a function that ``run`` and ``trace`` get instead of the
    model's.
``Dependence(push, columns)``
    tells which entries of the outputs depend on which columns of a Jacobian: ``push`` is the result
    of ``linearize``, and ``columns`` has a frozen set of numbers for each array, or an array of
    sets. Its ``outputs`` have the sets of the outputs, and its ``push(tangents, columns)`` pushes
    tangents that are zero in all other columns.
``hint(error, stage)``
    returns a sentence for the user if the error came from a model that is not written for the
    library, or ``None``.
``stop_gradient(leaf)``, ``value(leaf)``
    take one leaf inside a traced model, and return leaves of other libraries unchanged. The first
    returns the number without a derivative, the second the plain number, out of all nested traces.
``finds_writes = True``
    if its arrays share the memory of the arguments, and it raises an error if a model has written
    into them. Then it gets the arguments writeable; all other backends get them read-only.
"""

import importlib
import platform
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import cloudpickle

from daskgrad.autodiff.values.carriers import carrier


class Tape(Protocol):
    """The record of one call.

    It may have ``pull_rows(cotangents, asked, is_term)``, which is ``pull`` but returns ``Rows``
    (``daskgrad.autodiff.values.rows``) for the arrays ``asked``, and in a term of a sum for large
    arrays if few rows were used. It can travel to other processes (``dg.PullbackPolicy`` decides
    when) if it also has

    - ``steps``: the number of operations that it recorded;
    - ``pickler``: a subclass of ``pickle.Pickler`` that pickles it, or raises; the tape that
      ``pickle.loads`` returns must pull back to the same bits.

    A tape without them stays in its process, and the model is traced again elsewhere.

    A program's tape has ``tape_nbytes``, the bytes of the tape that it stands for: whether a real
    number's tape or gradient is kept must not depend on which there is.
    """

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or ``None`` for zero) per output to one (or ``None``) per array.

        Complex cotangents follow autograd's convention. It may be called any number of times, from
        any thread, and does not change its arguments.
        """

    def held_arrays(self) -> Sequence[Any]:
        """The arrays that the tape keeps alive, each once; they have ``nbytes``."""


class Backend(Protocol):
    """A library that differentiates one model."""

    def dumps(self, fun: Callable) -> bytes:
        """Pickles a function for another process, where it will be differentiated."""

    def loads(self, data: bytes) -> Callable:
        """Unpickles the function."""

    def run(self, fun: Callable, args: tuple, kwargs: dict) -> Any:
        """The value of a call; nothing is differentiated."""

    def trace(self, fun: Callable, arrays: Sequence[Any]) -> tuple[list[Any], Tape]:
        """Runs a function of the ``arrays``, which returns a list of leaves; for reverse mode.

        The arrays are float or complex NumPy arrays or numbers, at least one. The outputs are the
        leaves, the library's own as NumPy values and all others unchanged. For a call of a model,
        ``fun`` is a ``TracedCall`` (``daskgrad.autodiff.tape.traced_call``).
        """

    def linearize(
        self, fun: Callable, arrays: Sequence[Any]
    ) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """Runs a function in forward mode, with a linear map ``push`` instead of the tape.

        ``push(tangents)`` takes a tangent (or ``None`` for zero) per array and returns one per
        output: zeros if none arrives, and ``None`` for an output without derivative; it may be
        called any number of times. Outputs and tangents are the library's arrays: ``linearize`` and
        ``push`` consist of its differentiable operations, so that ``trace`` and ``run`` can take
        functions that call them.
        """


@carrier
class GradientTape:
    """The gradient of one real number, which is the output ``end``: scaled by its cotangent.

    It stays in its process, as it is as large as the arguments.
    """

    gradient: list[Any]
    end: int = 0

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one (or None) per array."""
        factor = cotangents[self.end]
        if factor is None:
            return [None] * len(self.gradient)
        if factor == 1.0:
            return list(self.gradient)
        return [None if g is None else g.dtype.type(factor) * g for g in self.gradient]

    def held_arrays(self) -> list[Any]:
        return [g for g in self.gradient if g is not None]


# ------------------------------------------------------------------------------------ the registry

# optional backends, and what they need
LIBRARIES: dict[str, tuple[str, ...]] = {"jax": ("jax",), "torch": ("torch",)}
NAMES = ("autograd", *LIBRARIES)
NATIVE = "native"  # the backend of models in machine code
LIBRARIES[NATIVE] = ("llvmlite", "scipy")
# models of autograd, by the argument ``compile``
COMPILED = {True: "compiled", "auto": "cautious", NATIVE: NATIVE}
BY_HAND = "by_hand"  # the backend of ``dg.delayed(fun, gradient=True)``
OF_NUMPY = ("autograd", *COMPILED.values(), BY_HAND)  # others may compute on a worker's GPU
UNNAMED = {  # module and attribute of backends that users do not name
    "compiled": ("daskgrad.autodiff.programs.backend", "vouched"),
    "cautious": ("daskgrad.autodiff.programs.backend", "cautious"),
    NATIVE: ("daskgrad.autodiff.native.backend", "backend"),
    BY_HAND: ("daskgrad.autodiff.libraries.by_hand", ""),
}
FUNCTIONS = tuple([name for name in vars(Backend) if not name.startswith("_")])

_loaded: dict[Any, Any] = {}  # backends of the package and registered ones, by name


class SentBackend(NamedTuple):
    """A registered backend on its way: the path of its module, or its pickle."""

    name: str
    module: str
    data: bytes


_arrived: dict[str, tuple[SentBackend, Any]] = {}  # the last one of each name


def load(which: str | SentBackend) -> Backend:
    """The backend of that name.

    Raises
    ------
    ValueError
        if no backend has this name; the message lists the names.
    ModuleNotFoundError
        if its library is not installed here; the message names the extra.
    """
    if type(which) is SentBackend:
        return _load_sent(which)
    is_name = isinstance(which, str)
    if is_name and which in _loaded:
        return _loaded[which]
    if not is_name or which not in (*NAMES, *UNNAMED):
        names = ", ".join(name for name in dict.fromkeys((*NAMES, *_loaded)) if name not in UNNAMED)
        raise ValueError(
            f"unknown backend {which!r}; choose one of {names}, or register one with "
            f"dg.register_backend"
        )
    _loaded[which] = _load_own(which)
    return _loaded[which]


def _load_own(name: str) -> Any:
    home = "tape" if name == "autograd" else f"libraries.{name}"
    path, attribute = UNNAMED.get(name, (f"daskgrad.autodiff.{home}", ""))
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        library = error.name
        if library not in LIBRARIES.get(name, ()):
            raise
        subject = "compile='native'" if name == NATIVE else f"backend {name!r}"
        raise ModuleNotFoundError(
            f"{subject} needs {library}, which is not installed on {platform.node()!r}; "
            f'run pip install "daskgrad[{name}]" there',
            name=library,
        ) from None
    return getattr(module, attribute) if attribute else module


def _load_sent(sent: SentBackend) -> Any:
    arrived = _arrived.get(sent.name)
    if arrived is None or arrived[0] != sent:
        by_path = bool(sent.module)
        backend = importlib.import_module(sent.module) if by_path else cloudpickle.loads(sent.data)
        arrived = _arrived[sent.name] = sent, backend
    return arrived[1]


def sent(which: str | SentBackend) -> str | SentBackend:
    """A backend as it travels to processes where it is not registered."""
    if isinstance(which, SentBackend) or which in (*NAMES, *UNNAMED):
        return which
    backend = load(which)
    if isinstance(backend, ModuleType):
        return SentBackend(which, backend.__name__, b"")
    return SentBackend(which, "", cloudpickle.dumps(backend))


def register_backend(name: str, backend: Any) -> None:
    """Registers a backend for ``dg.delayed(fun, backend=name)``; replaces one of the same name.

    ``backend`` is a module or any other object with the functions that
    ``daskgrad.autodiff.libraries.registry`` describes. It is registered in this process only, and
    travels with the models: a module by its import path, so workers must have it; any other object
    by value, in its state when a model is sent.

    Raises
    ------
    ValueError
        if one of daskgrad's own backends has the name.
    TypeError
        if the name is not a string, a function is missing, or a module cannot be imported by name.

    Examples
    --------
    >>> import daskgrad.autodiff.tape
    >>> dg.register_backend("my_copy", daskgrad.autodiff.tape)
    >>> dg.grad(dg.delayed(np.sum, backend="my_copy"))(np.ones(2))
    array([1., 1.])
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend must be a string; found {name!r}")
    if name in (*NAMES, *UNNAMED):
        raise ValueError(f"backend {name!r} is daskgrad's own; choose another name")
    missing = [function for function in FUNCTIONS if not callable(getattr(backend, function, None))]
    if missing:
        raise TypeError(
            f"backend {name!r} lacks {', '.join(missing)}; the protocol is described in "
            f"daskgrad.autodiff.libraries.registry"
        )
    path = backend.__name__ if isinstance(backend, ModuleType) else ""
    if path == "__main__" or (path and sys.modules.get(path) is not backend):
        raise TypeError(
            f"backend {name!r} is the module {path!r}, which other processes cannot "
            f"import; put its functions into a class, and register an instance of it"
        )
    _loaded[name] = backend


def prepare(backend: Backend, fun: Callable) -> Callable:
    """A model's function, prepared by its backend for many calls."""
    prepare_for = getattr(backend, "prepare", None)
    return fun if prepare_for is None else prepare_for(fun)


def compiled(which: str, mode: bool | str) -> str:
    """The backend that compiles another one's models, always (``True``), to machine code
    ("native") or as far as is safe ("auto"). ValueError if it must and there is none."""
    if which == "autograd":
        return COMPILED.get(mode, which)
    if mode in (True, NATIVE):
        raise ValueError(f"compile={mode!r} is for models of backend 'autograd'; found {which!r}")
    return which


def is_compiled(which: str | SentBackend) -> bool:
    """Whether a backend has programs."""
    return which in COMPILED.values()


def finds_writes(backend: Backend) -> bool:
    """Whether a backend gets writeable arrays, and raises if a model writes into them."""
    return getattr(backend, "finds_writes", False)


def hint(which: str | SentBackend, error: Exception, stage: str) -> str | None:
    """The hint of a loaded backend for an error of a model."""
    if isinstance(which, str):
        backend = _loaded.get(which)
    else:
        _, backend = _arrived.get(which.name, (which, None))
    hint_for = getattr(backend, "hint", None)
    return None if hint_for is None else hint_for(error, stage)


def of_leaves(name: str) -> list[Callable[[Any], Any]]:
    """The functions ``stop_gradient`` or ``value`` of the backends that may own a leaf: this
    process has imported their libraries."""
    package = [load(backend_name) for backend_name in NAMES if backend_name in sys.modules]
    registered = [backend for backend_name, backend in _loaded.items() if backend_name not in NAMES]
    arrived = [backend for _, backend in _arrived.values()]
    functions = [getattr(backend, name, None) for backend in (*package, *registered, *arrived)]
    return [function for function in functions if function is not None]
