"""Programs: two Python functions that do what a model and its pullback did; and their tapes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.backends.autograd.reverse import Tape, arrays_within


class Diverged(Exception):
    """The data takes another way through the model than when it was recorded."""


class Program(NamedTuple):
    """``forward`` takes all arrays of a call and returns the outputs and the residuals;
    ``backward`` takes the residuals and cotangents, and returns those of the traced arrays.

    ``examples`` are cotangents, one for each output, and ``None`` where ``backward`` takes none;
    ``constants`` are the functions and other objects that the source names.
    """

    source: str
    forward: Callable[..., tuple]
    backward: Callable[..., list]
    examples: Sequence[Any]
    constants: Mapping[str, Any]

    def pull_examples(self, residuals: tuple) -> list[Any]:
        return self.backward(residuals, *[each for each in self.examples if each is not None])


class CompiledTape:
    """Residuals of a program's forward pass. It stays in its process: residuals hold pullbacks.

    ``trace_again`` makes the tape itself, for cotangents that the program was not made for.
    """

    __slots__ = ("_program", "_residuals", "_trace_again")

    def __init__(self, program: Program, residuals: tuple, trace_again: Callable[[], Tape]):
        self._program = program
        self._residuals = residuals
        self._trace_again = trace_again

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent per output to one per array; see ``backends.protocol``."""
        chosen = []
        for cotangent, value in zip(cotangents, self._program.examples, strict=True):
            if value is not None:
                if not fits(cotangent, value):
                    return self._trace_again().pull(cotangents)
                chosen.append(cotangent)
        return self._program.backward(self._residuals, *chosen)

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the residuals keep alive, each once; a view counts as its owner."""
        return arrays_within(self._residuals)


def fits(cotangent: Any, example: Any) -> bool:
    """Whether a cotangent is like the one that a program was written with."""
    return (
        type(cotangent) is type(example)
        and cotangent.shape == example.shape
        and cotangent.dtype == example.dtype
    )
