"""Programs: two Python functions that do what a model and its pullback did; and their tapes."""

import ast
import functools
import io
import pickle
import types
import weakref
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.calls import kind_of
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.tape.reverse import AutogradTape, arrays_within, trace
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, describe

MOST_ARRIVED = 256
MOST_CODES = 1024


class Source(NamedTuple):
    """The text of a program; the file of the model, and for each line of the text the one there."""

    text: str
    file: str = ""
    lines: tuple[int, ...] = ()


class Program(NamedTuple):
    """``forward`` takes all arrays of a call and returns the outputs and the residuals;
    ``backward`` takes the residuals and cotangents, and returns those of the traced arrays.

    ``examples`` are cotangents, one for each output, and ``None`` where ``backward`` takes none;
    ``seeds`` are those that it takes;
    ``constants`` are the functions and other objects that the source names; ``nbytes`` are those of
    arrays among these that were copied.
    """

    name: str
    source: Source
    forward: Callable[..., tuple]
    backward: Callable[..., list]
    examples: Sequence[Any]
    constants: Mapping[str, Any]
    seeds: Sequence[Any]
    nbytes: int

    @classmethod
    def of_source(
        cls,
        name: str,
        source: Source,
        examples: Sequence[Any],
        constants: Mapping[str, Any],
        nbytes: int = 0,
    ) -> "Program":
        namespace = namespace_of(source, constants)
        forward, backward = namespace["forward"], namespace["backward"]
        seeds = [each for each in examples if each is not None]
        return cls(name, source, forward, backward, examples, constants, seeds, nbytes)

    def __reduce__(self) -> tuple:
        """As text, with what it names; a process that gets many tapes of it makes it once."""
        parts = self.name, self.source, self.examples, self.constants
        packed = _packed.get(self.forward)
        if packed is None:
            packed = _packed[self.forward] = pickled(parts)
        return arrived_program, (packed,)

    def pull_examples(self, residuals: tuple) -> list[Any]:
        return self.backward(residuals, *self.seeds)


def namespace_of(source: Source, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The functions of a source, by their names."""
    namespace = {"np": np, "Diverged": Diverged, "kind_of": kind_of, **constants}
    exec(code_of(source), namespace)
    return namespace


@functools.lru_cache(MOST_CODES)
def code_of(source: Source) -> types.CodeType:
    """The code that defines the functions of a source; calls of other sizes have the same.

    Warnings and tracebacks name the model's file and line.
    """
    tree = ast.parse(source.text)
    nodes: Any = ast.walk(tree) if source.lines else ()
    for node in nodes:
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = source.lines[node.lineno - 1]
            node.col_offset = node.end_col_offset = 0
    return compile(tree, source.file or "<compiled>", "exec")


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
        watch: Any = None,
    ):
        self._program = program
        self._residuals = residuals
        self.tape_nbytes = tape_nbytes
        self._call = call
        self._arrays = arrays
        self._watch = watch

    def __reduce__(self) -> tuple:
        program = self._program
        # some may get no cotangent, as only the tape allows; and that answers where it diverges
        if len(program.examples) > 1 or "Diverged" in program.backward.__code__.co_names:
            raise pickle.PicklingError("a compiled pullback that may need the tape stays there")
        return CompiledTape, (program, self._residuals, self.tape_nbytes)

    @property
    def steps(self) -> int:
        """The lines of the program, which stand for the operations of the tape."""
        return self._program.source.text.count("\n")

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
        try:
            return self._program.backward(self._residuals, *chosen)
        except Diverged:
            return pull_as_asked(self._tape_for(chosen[0], chosen[0]), cotangents, asked)

    def _tape_for(self, cotangent: Any, example: Any) -> AutogradTape:
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
