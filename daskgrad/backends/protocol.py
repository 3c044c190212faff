"""The protocol: the functions that a backend has, and its tapes.

A backend is a module, or any object, with the five functions of ``Backend``. A model's ``args`` and
``kwargs`` are pytrees with NumPy arrays in them, and so is its value, whatever the library makes of
it in between. What else a backend may have:

``trace_block(block)``
    evaluates the terms of a sum many at a time: it takes a ``TracedBlock``
    (``daskgrad.backends.traced_call``) and returns an iterator of lists, which together have an
    entry an item, in order: the value, which is one real number, and its gradient, as ``pull`` of
    the cotangent one returns it; or ``None`` for an item that ``trace`` is to be called for. Which
    items those are is decided by the program and by shapes, never by data or by what the block is
    cut of: the bits of an item must not depend on that. It holds a bounded number of results at a
    time.
``prepare(fun)``
    called once for many calls, returns what ``run`` and ``trace`` are given in the place of a
    model's function.
``hint(error, stage)``
    returns a sentence for a user whose model raised an error because it is not written for the
    library, or ``None``.
``stop_gradient(leaf)``, ``value(leaf)``
    take one leaf of what a traced model works on, and return one that is not the library's own as
    it is: the former the same number without a derivative, the latter the plain number, out of all
    nested traces.
``finds_writes = True``
    where its own arrays share the memory of the arguments, which are read-only for all others, and
    it raises an error where a model has written into them: it is given them as they are.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Tape(Protocol):
    """The record of one call.

    It may have ``pull_rows(cotangents)``, which is ``pull`` but returns ``Rows``
    (``daskgrad.values.rows``) for large arrays of which few rows were used; sums add these up. It
    may travel to other processes (``dg.PullbackPolicy`` says when) if it also has

    - ``steps``: how many operations it recorded;
    - ``pickler``: a subclass of ``pickle.Pickler`` that makes bytes of it, or raises; what
      ``pickle.loads`` makes of these pulls back to the same bits.

    One without them stays where it is, and the model is traced again elsewhere.
    """

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """One cotangent (or ``None`` for zero) an output in, one (or ``None``) an array out.

        They are in autograd's convention for complex numbers. May be called any number of times,
        from any thread; changes none of its arguments.
        """

    def held_arrays(self) -> Sequence[Any]:
        """What the tape keeps alive, each array once; they have ``nbytes``."""


class Backend(Protocol):
    """A library that differentiates one model."""

    def dumps(self, fun: Callable) -> bytes:
        """A function for another process, with what the library needs to differentiate it."""

    def loads(self, data: bytes) -> Callable:
        """The function again."""

    def run(self, fun: Callable, args: tuple, kwargs: dict) -> Any:
        """The value of a call; nothing is differentiated."""

    def trace(self, fun: Callable, arrays: Sequence[Any]) -> tuple[list[Any], Tape]:
        """Runs a function of the ``arrays``, which returns a list of leaves; for reverse mode.

        The arrays are float or complex NumPy arrays or numbers, at least one. The outputs are those
        leaves, as NumPy values where they were the library's, and else as they are. What ``fun`` is
        for a call of a model is a ``TracedCall`` (``daskgrad.backends.traced_call``).
        """

    def linearize(
        self, fun: Callable, arrays: Sequence[Any]
    ) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """The same for forward mode, with a linear map ``push`` in the place of the tape.

        ``push(tangents)`` takes one tangent (or ``None`` for zero) an array and returns one an
        output: zeros where none arrives, and ``None`` for an output without derivative; it may be
        called any number of times. Outputs and tangents are the library's arrays: ``linearize`` and
        ``push`` consist of its own differentiable operations, so that ``trace`` and ``run`` can go
        through a function that calls them.
        """
