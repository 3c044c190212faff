"""The protocol: the functions that a backend must and may have, and its tapes.

A backend is a module, or any object, with the five functions of ``Backend``. A model's ``args`` and
``kwargs`` are pytrees of NumPy arrays, and so is its value, whatever types the library uses in
between. A backend may also have:

``trace_block(block)``
    evaluates the terms of a sum many at a time: it takes a ``TracedBlock``
    (``daskgrad.backends.traced_call``) and returns an iterator of lists, which together have an
    entry for each item, in order: its value, one real number, and its gradient, as ``pull`` of the
    cotangent one returns it; or ``None`` if ``trace`` must be called for the item, or a
    ``Pending`` with what ``trace`` may then use. A ``TermRun`` may stand for a list. Only the
    program and shapes may decide which items get ``None``, never data or the cut of the block: the
    bits of an item must not depend on these. It holds a bounded number of results at a time.
``prepare(fun)``
    called once for many calls, returns a function that ``run`` and ``trace`` get instead of the
    model's.
``Dependence(push, columns)``
    tells which entries of the outputs depend on which columns of a Jacobian: ``push`` is what
    ``linearize`` returned, and ``columns`` has a frozen set of numbers for each array, or an array
    of such sets. Its ``outputs`` are the same for the outputs, and its ``push(tangents, columns)``
    pushes tangents that are zero in all other columns.
``hint(error, stage)``
    returns a sentence for a user whose model raised an error because it is not written for the
    library, or ``None``.
``stop_gradient(leaf)``, ``value(leaf)``
    take one leaf inside a traced model, and return leaves that are not the library's own unchanged.
    The first returns the same number without a derivative, the second the plain number, out of all
    nested traces.
``finds_writes = True``
    if its own arrays share the memory of the arguments, and it raises an error if a model has
    written into them. Then it gets the arguments writeable; all other backends get them read-only.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Tape(Protocol):
    """The record of one call.

    It may have ``pull_rows(cotangents)``, which is ``pull`` but returns ``Rows``
    (``daskgrad.values.rows``) for large arrays of which few rows were used; sums add these up. It
    can travel to other processes (``dg.PullbackPolicy`` decides when) if it also has

    - ``steps``: the number of operations that it recorded;
    - ``pickler``: a subclass of ``pickle.Pickler`` that pickles it, or raises; the tape that
      ``pickle.loads`` returns must pull back to the same bits.

    A tape without them stays in its process, and the model is traced again elsewhere.

    If it stands for another tape, it has ``tape_nbytes``, what that one's arrays take: of a real
    number, gradient or tape is kept by the same count, whichever of the two there is.
    """

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or ``None`` for zero) per output to one (or ``None``) per array.

        Complex cotangents follow autograd's convention. May be called any number of times, from any
        thread; does not change its arguments.
        """

    def held_arrays(self) -> Sequence[Any]:
        """The arrays that the tape keeps alive, each once; they have ``nbytes``."""


class Backend(Protocol):
    """A library that differentiates one model."""

    def dumps(self, fun: Callable) -> bytes:
        """Pickles a function for another process, with all that it needs to be differentiated."""

    def loads(self, data: bytes) -> Callable:
        """Unpickles the function."""

    def run(self, fun: Callable, args: tuple, kwargs: dict) -> Any:
        """The value of a call; nothing is differentiated."""

    def trace(self, fun: Callable, arrays: Sequence[Any]) -> tuple[list[Any], Tape]:
        """Runs a function of the ``arrays``, which returns a list of leaves; for reverse mode.

        The arrays are float or complex NumPy arrays or numbers, at least one. The outputs are the
        leaves, those of the library's types as NumPy values, all others unchanged. For a call of a
        model, ``fun`` is a ``TracedCall`` (``daskgrad.backends.traced_call``).
        """

    def linearize(
        self, fun: Callable, arrays: Sequence[Any]
    ) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """The same for forward mode, with a linear map ``push`` instead of the tape.

        ``push(tangents)`` takes a tangent (or ``None`` for zero) per array and returns one per
        output: zeros if none arrives, and ``None`` for an output without derivative; it may be
        called any number of times. Outputs and tangents are the library's arrays: ``linearize`` and
        ``push`` consist of its own differentiable operations, so that ``trace`` and ``run`` can
        take functions that call them.
        """
