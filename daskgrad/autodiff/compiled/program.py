"""Programs: two Python functions that do what a model and its pullback did; and their tapes."""

import io
import itertools
import linecache
import pickle
import types
import weakref
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.compiled.watch import Watch
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.tape.reverse import Tape, arrays_within, trace
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, describe

MOST_ARRIVED = 256


class Diverged(Exception):
    """The data takes another way through the model than when it was recorded."""


class Source(NamedTuple):
    """The text of a program, and its code.

    ``constants`` are the functions and objects that it names; ``parameters`` and ``derived`` are
    constants that each recording has its own of: numbers in its list of parameters, and functions
    of what it refers to. ``nbytes`` are those of constants that were copied.
    """

    name: str
    text: str
    code: types.CodeType
    constants: Mapping[str, Any]
    parameters: Mapping[str, int]
    derived: Mapping[str, tuple[Callable[..., Any], Sequence[Any]]]
    nbytes: int


class Program(NamedTuple):
    """``forward`` takes all arrays of a call and returns the outputs and the residuals;
    ``backward`` takes the residuals and cotangents, and returns those of the traced arrays.

    ``examples`` are cotangents, one for each output, and ``None`` where ``backward`` takes none;
    ``seeds`` are those that it takes;
    ``constants`` are the functions and other objects that the source names.
    """

    name: str
    source: str
    forward: Callable[..., tuple]
    backward: Callable[..., list]
    examples: Sequence[Any]
    constants: Mapping[str, Any]
    seeds: Sequence[Any]

    @classmethod
    def of_source(
        cls, name: str, source: str, examples: Sequence[Any], constants: Mapping[str, Any]
    ) -> "Program":
        return cls.of_code(name, source, code_of(name, source), examples, constants)

    @classmethod
    def of_code(
        cls,
        name: str,
        source: str,
        code: types.CodeType,
        examples: Sequence[Any],
        constants: Mapping[str, Any],
    ) -> "Program":
        """The functions of a source, which is where Python's tracebacks look for it."""
        namespace: dict[str, Any] = {"np": np, "Diverged": Diverged, **constants}
        exec(code, namespace)
        forward, backward = namespace["forward"], namespace["backward"]
        file = code.co_filename
        if file not in linecache.cache:
            linecache.cache[file] = (len(source), None, source.splitlines(True), file)
            weakref.finalize(forward.__code__, linecache.cache.pop, file, None)
        seeds = [each for each in examples if each is not None]
        return cls(name, source, forward, backward, examples, constants, seeds)

    def __reduce__(self) -> tuple:
        """As text, with what it names; a process that gets many tapes of it makes it once."""
        parts = self.name, self.source, self.examples, self.constants
        packed = _packed.get(self.forward)
        if packed is None:
            packed = _packed[self.forward] = pickled(parts)
        return arrived_program, (packed,)

    def pull_examples(self, residuals: tuple) -> list[Any]:
        return self.backward(residuals, *self.seeds)


def code_of(name: str, source: str) -> types.CodeType:
    """The code that defines the two functions of a source."""
    return compile(source, f"<compiled {name} {next(_numbers)}>", "exec")


_numbers = itertools.count()
_packed: MutableMapping[Any, bytes] = weakref.WeakKeyDictionary()
_arrived: dict[bytes, Program] = {}


def pickled(parts: tuple) -> bytes:
    buffer = io.BytesIO()
    TapePickler(buffer, protocol=5).dump(parts)
    return buffer.getvalue()


def arrived_program(packed: bytes) -> Program:
    def load() -> Program:
        return Program.of_source(*pickle.loads(packed))

    return kept_or_made(_arrived, packed, load, MOST_ARRIVED)


class CompiledTape:
    """Residuals of a program's forward pass; ``nbytes`` is what the tape itself would hold.

    ``call`` of ``arrays``: of this the tape itself is made for cotangents that the program was not
    made for, unless the ``watch`` has seen that another one would be; a tape that came from another
    process has none.
    """

    __slots__ = ("_arrays", "_call", "_program", "_residuals", "_watch", "tape_nbytes")

    pickler = TapePickler

    def __init__(
        self,
        program: Program,
        residuals: tuple,
        tape_nbytes: int,
        call: Callable | None = None,
        arrays: Sequence[Any] = (),
        watch: Watch | None = None,
    ):
        self._program = program
        self._residuals = residuals
        self.tape_nbytes = tape_nbytes
        self._call = call
        self._arrays = arrays
        self._watch = watch

    def __reduce__(self) -> tuple:
        if len(self._program.examples) > 1:  # some may get no cotangent, as only the tape allows
            raise pickle.PicklingError("a compiled pullback of several outputs stays where it is")
        return CompiledTape, (self._program, self._residuals, self.tape_nbytes)

    @property
    def steps(self) -> int:
        """The lines of the program, which stand for the operations of the tape."""
        return self._program.source.count("\n")

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent per output to one per array; see ``autodiff.libraries.registry``."""
        return self.pull_rows(cotangents)

    def pull_rows(
        self, cotangents: Sequence[Any], asked: Collection[int] = (), is_term: bool = False
    ) -> list[Any]:
        """The same, with rows for the arrays ``asked``, which the program was made for."""
        chosen = []
        for cotangent, value in zip(cotangents, self._program.examples, strict=True):
            if value is not None:
                if not fits(cotangent, value):
                    return pull_as_asked(self._tape_for(cotangent, value), cotangents, asked)
                chosen.append(cotangent)
        return self._program.backward(self._residuals, *chosen)

    def _tape_for(self, cotangent: Any, example: Any) -> Tape:
        if self._call is None:
            raise TypeError(
                f"the pullback of model {self._program.name!r}, which is compiled and came from "
                f"another process, takes a cotangent like {describe(example)}; found "
                f"{describe(cotangent)}"
            )
        if self._watch is not None and self._watch.has_changed():
            raise NondeterministicModelError(
                f"something to which model {self._program.name!r} refers has changed since it ran, "
                f"and its pullback runs it again for the cotangent {describe(cotangent)}: pass it "
                f"as an argument, or say dg.delayed(model, compile=False)"
            )
        return trace(self._call, self._arrays)[1]

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the residuals keep alive, each once; a view counts as its owner."""
        return arrays_within(self._residuals)


def pull_as_asked(tape: Any, cotangents: Sequence[Any], asked: Collection[int]) -> list[Any]:
    """The cotangents of a tape's arrays, those that are asked for as rows."""
    return tape.pull_rows(cotangents, asked) if asked else tape.pull(cotangents)


def fits(cotangent: Any, example: Any) -> bool:
    """Whether a cotangent is like the one that a program was written with."""
    return (
        type(cotangent) is type(example)
        and cotangent.shape == example.shape
        and cotangent.dtype == example.dtype
    )
