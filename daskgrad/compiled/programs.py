"""The programs of a model: made when they are needed, checked against the tape, and used.

The tape decides what is right. Before a program is used for the first time, its values and
cotangents are compared with the tape's, bit by bit; so are those of calls 4, 9, 19, 39 and so on,
and then as often as takes a fiftieth of the time. A model whose first comparison fails is left to
the tape; a later failure is an error, since results before it may be wrong.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.backends.autograd.reverse import trace
from daskgrad.backends.traced_call import Layout, TracedCall
from daskgrad.compiled.program import CompiledTape, Diverged, Program
from daskgrad.compiled.purity import impurity_of, impurity_of_containers
from daskgrad.compiled.recording import record
from daskgrad.compiled.shortcuts import Shortcuts
from daskgrad.compiled.signatures import Signature, are_same, signature_of
from daskgrad.compiled.steps import Unrecordable
from daskgrad.compiled.watch import Watch
from daskgrad.compiled.writing import write
from daskgrad.values.descriptions import function_name
from daskgrad.values.errors import NondeterministicModelError
from daskgrad.values.trees import flatten, substitute, unflatten

COMPILED_AT = 3  # calls of a signature: what is called twice is traced in less time
COLD = 6  # calls of a model that nobody vouched for, after which it is looked at
UNASKED_AT = 4  # calls of a signature after that: to write a program takes as long as ten calls
SLOW = 0.02  # seconds of a call, of which tracing takes little
MOST_SIGNATURES = 1024  # of one model: items may be of many sizes
MOST_WAYS = 8  # through one model, for one signature
SHARE = 0.02  # of the time that checks may take


class Programs:
    """The programs of one function, by signature; it does not keep the function alive.

    If nobody vouches for the model, there are none unless its code tells that it is pure.
    """

    def __init__(self, is_vouched: bool = True) -> None:
        self._is_vouched = is_vouched
        self._watch: Watch | None = None
        self._entries: dict[Any, Entry] = {}
        self.impurity: str | None = None
        self._cold = 0 if is_vouched else COLD
        self._shortcuts: dict[Any, Shortcuts] = {}

    def shortcuts(self, numbers: tuple[int, ...], is_bare: bool, has_out: bool) -> Shortcuts | None:
        """Those of the programs, if nothing has changed to which the function refers."""
        if self._watch is None or self._watch.has_changed():
            return None
        key = numbers, is_bare, has_out
        found = self._shortcuts.get(key)
        return found or self._shortcuts.setdefault(key, Shortcuts(self, *key))

    def trace(
        self, fun: Callable, call: TracedCall, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """What ``reverse.trace`` returns, by a program where there is one."""
        if self._cold or self.impurity is not None:
            self._cold = max(self._cold - 1, 0)
            return trace(call, arrays)
        layout = call.layout()
        signature = signature_of(layout)
        entry = self.entry(fun, signature)
        if signature is None or entry is None:
            return trace(call, arrays)
        return entry.trace(call, arrays, layout, signature)

    def entry(self, fun: Callable, signature: Signature | None) -> "Entry | None":
        """The programs for a signature; those that were made before something changed to which
        the function refers are dropped."""
        if self._watch is None or self._watch.has_changed():
            self._watch, self._entries = Watch(pushed_function(fun)), {}
            self._shortcuts = {}
            self.impurity = None if self._is_vouched else impurity_of(pushed_function(fun))
        if signature is None or self.impurity is not None:
            return None
        entry = self._entries.get(signature.key)
        if entry is None and len(self._entries) < MOST_SIGNATURES:
            name = function_name(pushed_function(fun))
            entry = Entry(name, self._watch, self._is_vouched)
            if not self._is_vouched:
                entry.refusal = impurity_of_containers(signature.structure)
            self._entries[signature.key] = entry
        return entry


def pushed_function(fun: Any) -> Callable:
    """The model of which a function computes tangents; of any other, the function itself."""
    return getattr(fun, "daskgrad_pushed", (fun,))[0]


class Way(NamedTuple):
    """A program for one way through the model's branches, and the structure of its value.

    ``tape_nbytes``: of the arrays that the tape holds for such a call.
    """

    program: Program
    structure: Any
    tape_nbytes: int = 0


def way_of(fun: Callable, name: str, layout: Layout, signature: Signature) -> Way:
    """The program for the way that a call takes; Unrecordable, or the model's own error."""
    numbers = [layout.places[place] for place in signature.places]
    structures = []

    def leaves_of_value(*boxes: Any) -> list[Any]:
        leaves = substitute(layout.leaves, signature.places, boxes)
        traced = dict(zip(numbers, boxes, strict=True))
        for place, number in enumerate(layout.places):
            if number is not None:  # an array may be passed twice
                leaves[place] = traced[number]
        args, kwargs = unflatten(layout.structure, leaves)
        outputs, structure = flatten(fun(*args, **kwargs))
        structures.append(structure)
        return outputs

    inputs = [layout.leaves[place] for place in signature.places]
    recording = record(leaves_of_value, inputs, [number is not None for number in numbers])
    order = [number for number in numbers if number is not None]
    return Way(write(recording, name, order), structures[0])


class Entry:
    """The programs of one function for one signature."""

    def __init__(self, name: str, watch: Watch, is_vouched: bool):
        self._name = name
        self._watch = watch
        self._is_vouched = is_vouched
        self.ways: list[Way] = []
        self.refusal: str | None = None
        self.checks = 0
        self.calls = 0
        self._next_check = 0
        self._fastest = math.inf

    @property
    def is_due(self) -> bool:
        """Whether the next call is to be compared with the tape."""
        return self.calls + 1 >= self._next_check

    def run(self, inputs: Sequence[Any]) -> tuple[Way, list[Any], tuple] | None:
        """Outputs and residuals, and the program that they are of; ``None`` if the tape is to be
        asked: then it raises the model's error, in the model's own lines, if there is one."""
        self.calls += 1
        for way in self.ways:
            try:
                outputs, residuals = way.program.forward(*inputs)
            except Diverged:
                continue
            except Exception:
                return None
            return way, outputs, residuals
        return None

    def trace(
        self, call: TracedCall, arrays: Sequence[Any], layout: Layout, signature: Signature
    ) -> tuple[list[Any], Any]:
        """What ``reverse.trace`` returns."""
        if self.refusal and not self.ways:
            return trace(call, arrays)
        inputs = [layout.leaves[place] for place in signature.places]
        is_due, begin = self.is_due, time.perf_counter()
        found = self.run(inputs)
        if found is not None:
            way, outputs, residuals = found
            call.structure = way.structure
            again = lambda: trace(call, arrays)[1]  # noqa: E731
            compiled = CompiledTape(way.program, residuals, way.tape_nbytes, again)
            if is_due:
                self._check(call, arrays, way.program, outputs, compiled, begin)
            return outputs, compiled
        outputs, tape = trace(call, arrays)
        if not self.refusal and self._is_worth_it(time.perf_counter() - begin):
            self._add_way(call, layout, signature, outputs, tape)
        return outputs, tape

    def _is_worth_it(self, seconds: float) -> bool:
        """Whether a program is to be written for the way of a call that took so long."""
        if len(self.ways) >= MOST_WAYS:
            return False
        if self._is_vouched:
            return self.calls >= COMPILED_AT
        self._fastest = min(self._fastest, seconds)
        return self.calls >= UNASKED_AT and self._fastest < SLOW

    def _add_way(
        self,
        call: TracedCall,
        layout: Layout,
        signature: Signature,
        outputs: Sequence[Any],
        tape: Any,
    ) -> None:
        """Writes a program for the way that this call took, and compares it with the tape; tells
        why, if there is none."""
        inputs = [layout.leaves[place] for place in signature.places]
        try:
            with np.errstate(all="ignore"):
                way = way_of(call.fun.fun, self._name, layout, signature)
                found, residuals = way.program.forward(*inputs)
                pulled = way.program.pull_examples(residuals)
                expected = tape.pull(way.program.examples)
        except Unrecordable as error:
            self.refusal = str(error)
        except Exception as error:  # the tape raised none: it is the program's
            self.refusal = f"its program fails: {type(error).__name__}: {error}"
        else:
            if not (are_same(found, outputs) and are_same(pulled, expected)):
                self.refusal = "its program differs from the model"
            elif self._watch.has_changed():
                self.refusal = "it changes what it refers to"
            else:
                nbytes = sum([array.nbytes for array in tape.held_arrays()])
                self.ways.append(way._replace(tape_nbytes=nbytes))
                self._next_check = self.calls + 1

    def _check(
        self,
        call: TracedCall,
        arrays: Sequence[Any],
        program: Program,
        outputs: list[Any],
        tape: CompiledTape,
        begin: float,
    ) -> None:
        """Compares a call of a program with the tape, and decides when to do so again."""
        pulled = tape.pull(program.examples)
        middle = time.perf_counter()
        expected, other = trace(call, arrays)
        is_right = are_same(outputs, expected)
        is_right = is_right and are_same(pulled, other.pull(program.examples))
        end = time.perf_counter()
        if not is_right:
            raise NondeterministicModelError(
                f"the compiled program of {self._name!r} and the model itself returned different "
                f"values or gradients for the same arguments, at call {self.calls}; results since "
                f"the last comparison may be wrong. The model refers to something that changes and "
                f"is not an argument, or draws random numbers: pass that as an argument, or say "
                f"dg.delayed(model, compile=False)"
            )
        self.checks += 1
        seldom = (end - middle) / (SHARE * max(middle - begin, 1e-9))
        self._next_check = self.calls + min(self.calls, int(seldom)) + 1
