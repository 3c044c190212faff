"""The backend of ``compile="native"``: programs in machine code, within rounding of the tape.

A kind of calls is compiled at its first call: who answers depends neither on the number of calls
nor on time. A list of calls without machine code stays a program, with the tape's bits. So does a
call with a floating-point error, which runs on the tape, for its warnings. Items of sums run one
after the other in one loop: the bits of an item do not depend on the others.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy  # noqa: F401 - has LAPACK's addresses: the extra is there as a whole

from daskgrad.autodiff.native.code import MachineCode, Shared, Stacked, Unwritable, compiled
from daskgrad.autodiff.programs.backend import CompiledBackend
from daskgrad.autodiff.programs.batches import Parted
from daskgrad.autodiff.programs.calls import CallList, cut, value_of
from daskgrad.autodiff.programs.program import written
from daskgrad.autodiff.programs.rewrites import needed
from daskgrad.autodiff.programs.signatures import Signature, inputs_of, signature_of
from daskgrad.autodiff.programs.store import Entry, Programs
from daskgrad.autodiff.programs.ways import BatchProgram, Way, are_like, recorded_way
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedCall
from daskgrad.autodiff.values.trees import LEAF

TOLERANCE = 1e-12  # of the largest entry
MOST_WAYS = 64  # through one model, for one signature
MOST_ENTRIES = 1024  # signatures
MOST_ITEMS = 1024  # of a batch


class NativeProgram:
    """Stands for a ``Program``. A real number's gradient is computed with it; the pullback of any
    other value runs the model again."""

    is_exact = False
    nbytes = 0

    def __init__(self, name: str, item: CallList, examples: Sequence[Any], active: Sequence[int]):
        self.name, self.examples = name, examples
        self.seeds = [example for example in examples if example is not None]
        self._width = len(item.inputs) - item.seed_count
        values, pulled = item.outputs[: item.value_count], item.outputs[item.value_count :]
        has_gradient = any([x is not None for x in pulled])
        lengths = {
            n: len(item.inputs[n].value)
            for n in range(self._width)
            if n not in active and np.ndim(item.inputs[n].value) == 1
        }
        longest = max(lengths.values(), default=0)  # of data: items have many lengths
        varying = [n for n, length in lengths.items() if length == longest > 1]
        is_number = len(values) == 1 and isinstance(value_of(values[0]), float)
        self.has_gradient = is_number and has_gradient and len(self.seeds) == 1
        pairs = [(item.inputs[n].value, g) for n, g in zip(active, pulled, strict=True)]
        are_usual = all([g is None or are_like(x, value_of(g)) for x, g in pairs])
        self.has_batches = self.has_gradient and are_usual
        self._pull: MachineCode | None = None
        if self.has_gradient:
            self._run = compiled(item, varying)
        else:
            place = [call.fun for call in item.calls].index(cut)
            self._run = compiled(
                item._replace(
                    inputs=item.inputs[: self._width],
                    calls=item.calls[:place],
                    outputs=values,
                    seed_count=0,
                )
            )
            if has_gradient:
                self._pull = compiled(needed(item._replace(outputs=pulled, value_count=0)))
        self._none = [None] * len(pulled)
        parts = [code for code in (self._run, self._pull) if code is not None]
        self.has_tape_bits = all([code.has_tape_bits for code in parts])
        self.seconds = sum([code.seconds for code in parts])
        callbacks = dict.fromkeys([name for code in parts for name in code.callbacks])
        self.callbacks = list(callbacks)
        self.steps = len(item.calls)

    def __reduce__(self) -> tuple:
        raise TypeError("machine code stays in its process")

    def forward(self, *inputs: Any) -> tuple[list[Any], tuple]:
        if self.has_gradient:
            value, *gradient = self._run.one([*inputs, *self.seeds])
            return [value], tuple(gradient)
        return self._run.one(inputs), inputs if self._pull else ()

    def backward(self, residuals: tuple, *seeds: Any) -> list[Any]:
        if self.has_gradient:
            return [None if g is None else scaled(g, seeds[0]) for g in residuals]
        if self._pull is None:
            return list(self._none)
        try:
            return self._pull.one([*residuals, *seeds])
        except ArithmeticError:  # a flag: the tape warns in the model's line
            raise Diverged from None

    def pull_examples(self, residuals: tuple) -> list[Any]:
        return list(residuals) if self.has_gradient else self.backward(residuals, *self.seeds)

    def rows(self, own: Sequence[int], *inputs: Any) -> list[Any]:
        """Values and gradients of many items, which differ in the inputs ``own``."""
        columns = [Stacked(x) if n in own else Shared(x) for n, x in enumerate(inputs)]
        count = len(inputs[own[0]])
        try:
            return self._run.block(count, columns)
        except (ArithmeticError, Diverged) as error:
            others = getattr(error, "items", None)
            if others is None:
                raise
            are_served = np.ones(count, bool)
            are_served[others] = False
            raise Parted(are_served) from None


def scaled(gradient: Any, factor: Any) -> Any:
    """A new array, or a number."""
    product = gradient * factor
    return np.asarray(product) if isinstance(gradient, np.ndarray) else type(gradient)(product)


class NativePrograms(Programs):
    """The programs of a model, in machine code where there is any."""

    is_exact = False
    advice = "pass it as an argument"

    def __init__(self, is_vouched: bool = True, is_shared: bool = False) -> None:
        super().__init__(is_vouched, is_shared)
        self._above = 0  # all arrays to which it refers are inputs, from the first call on
        self.unwritten: dict[str, None] = {}  # why lists have no machine code
        self._lock = threading.Lock()

    def trace(
        self, fun: Callable, call: TracedCall, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        is_made = False
        while self.impurity is None:
            entry, layout = self._entry_of(fun, call)
            if entry is None:
                break
            is_due = self.is_due
            self.calls += 1
            try:
                answer = by_ways(entry.ways, inputs_of(layout, entry.signature))
            except Exception:  # an error or a warning: the tape has it in the model's own lines
                break
            if answer is not None:
                return self._answered(fun, entry, layout, (call, arrays), answer, is_due)
            if is_made:
                break
            with self._expecting_names():
                outputs, tape = trace(call, arrays)
            self.taped += 1
            if tape.steps in entry.lengths:
                return outputs, tape
            reason = self._add_way(fun, entry, layout, outputs, tape, 0.0)
            is_made = reason is None
            if reason and not (entry.reads or self._look_otherwise(fun, entry, True)):
                entry.lengths.add(tape.steps)
                self.refusal = entry.refusal = reason
                return outputs, tape
        return trace(call, arrays)

    def _entry_of(self, fun: Callable, call: TracedCall) -> tuple[Entry | None, FlatArguments]:
        """The entry of a call, by the constants that it reads, and its arguments."""
        (entry, _), watch = call.known or (None, 0), self.watch
        if entry is None or entry.watch is not watch or watch.inputs or watch.has_changed():
            self.look_at(fun)
            layout = self.layout_of(fun, call)
            entry = self.known_entry(signature_of(layout, self.looks))
        else:
            layout = self.layout_of(fun, call)
        return self.finest(entry, layout.leaves), layout

    def known_entry(self, signature: Signature | None) -> Entry | None:
        entries = self._entries
        if signature is not None and len(entries) >= MOST_ENTRIES and signature.key not in entries:
            entries.pop(next(iter(entries)), None)  # whatever came before, a kind is compiled
        return super().known_entry(signature)

    def make_way(self, *settings: Any) -> Way:
        fun, layout, signature, name, watch = settings
        item, examples, structure, active = recorded_way(fun, layout, signature, watch)
        try:
            if layout.asked:
                raise Unwritable("its gradient is asked for as rows")
            with self._lock:
                program: Any = NativeProgram(name, item, examples, active)
        except Exception as reason:  # a fault of the writer costs no more than its machine code
            is_known = type(reason) is Unwritable
            self.unwritten[str(reason) if is_known else repr(reason)] = None
            program = written(item, name, examples)
        return Way(program, LEAF if structure == LEAF else structure, layout.asked)

    def make_batch(self, way: Way, *settings: Any) -> BatchProgram | None:
        program: Any = way.program
        if program.is_exact:
            return super().make_batch(way, *settings)
        *_, own, _ = settings
        if not program.has_batches or way.structure is not LEAF:
            return None
        return BatchProgram(partial(program.rows, own), MOST_ITEMS, [], [0, 0])

    def _keep(self, entry: Entry, way: Way) -> None:
        if len(entry.ways) >= MOST_WAYS:
            entry.ways, entry.batches = entry.ways[1:], {}
        super()._keep(entry, way)
        self.calls, self._next = 0, 1  # its first call is compared

    def check(
        self,
        fun: Callable,
        way: Way,
        called: tuple[TracedCall, Sequence[Any]],
        outputs: Sequence[Any],
        pull: Callable[[], Sequence[Any]],
    ) -> None:
        if way.program.is_exact:
            super().check(fun, way, called, outputs, pull)
            return
        call, arrays = called
        expected, tape = trace(call, arrays)
        results = list(outputs)
        try:
            pulled = list(pull())
        except Diverged:  # the tape answers whoever pulls
            pulled = []
        if pulled:
            results += pulled
            expected = [*expected, *tape.pull(way.program.examples)]
        is_near = all(map(near, results, expected))
        if not is_near:
            entry, layout = self._entry_of(fun, call)
            inputs = [] if entry is None else inputs_of(layout, entry.signature)
            others = [results_of(way.program, x) for x in moved(inputs)]
            others = [x for x in others if len(x) >= len(results)]
            is_near = all([near(*row) for row in zip(results, expected, *others, strict=False)])
        self._compared(fun, is_near)

    def _difference(self, name: str) -> str:
        return (
            f"the machine code of {name!r} and the model itself returned values or "
            f"gradients for the same arguments that differ by more than {TOLERANCE:g} of the "
            f"largest entry, and by more than they do if the arguments change by so much, at "
            f"call {self.calls} of its programs; results since the last comparison may be "
            f"wrong. If the model is a function of its arguments alone, this is a fault of "
            f"daskgrad: say dg.delayed(model, compile=True)"
        )


def by_ways(ways: Sequence[Way], inputs: Sequence[Any]) -> tuple[Way, list[Any], tuple] | None:
    """The way that serves inputs, its outputs and residuals; the errors of the model itself."""
    for way in ways:
        try:
            return way, *way.program.forward(*inputs)
        except Diverged:
            continue
    return None


# -------------------------------------------------------------------------------- comparisons


def near(one: Any, other: Any, *others: Any) -> bool:
    """Whether no entry differs by more than a share of the largest one, and as much as ``others``
    do; not-a-number and infinity are the same alone."""
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.dtype.kind not in "fc":
        return bool(np.all(one == other))
    with np.errstate(all="ignore"):
        finite = np.abs(other[np.isfinite(other)])
        allowed = TOLERANCE * np.max(finite, initial=0.0)
        allowed += max([np.max(np.abs(x - one), initial=0.0) for x in others], default=0.0)
        is_near = np.abs(one - other) <= allowed
    return bool(np.all(is_near | (one == other) | (np.isnan(one) & np.isnan(other))))


def moved(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Inputs that differ by a share of each entry: one way, and to and fro."""
    for sign in (1.0, -1.0):
        others = []
        for x in inputs:
            if np.result_type(x).kind == "f":
                signs = np.resize([1.0, sign], np.shape(x))
                share = np.multiply(x, 1.0 + TOLERANCE * signs)
                others.append(share if isinstance(x, np.ndarray) else type(x)(share))
            else:
                others.append(x)
        yield others


def results_of(program: Any, inputs: Sequence[Any]) -> list[Any]:
    """Outputs and cotangents; none if these inputs go another way."""
    try:
        outputs, residuals = program.forward(*inputs)
        return [*outputs, *program.pull_examples(residuals)]
    except Exception:
        return []


backend = CompiledBackend(True, NativePrograms)
