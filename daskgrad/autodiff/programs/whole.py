"""Whole evaluations: calls that are one program, with nothing between the caller and NumPy.

The function is a derivative of an objective that calls models. A program serves arguments of the
same types, shapes and dtypes. The ordinary way, which has all checks, serves unusual arguments, has
all exceptions, and makes the comparisons.
"""

import datetime
import enum
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs import kernels
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.carried import TEXT
from daskgrad.autodiff.programs.counters import count_up
from daskgrad.autodiff.programs.program import fits
from daskgrad.autodiff.programs.purity import is_of_library
from daskgrad.autodiff.programs.reasons import with_reasons
from daskgrad.autodiff.programs.references import kept, kind_of_reference, with_references
from daskgrad.autodiff.programs.signatures import (
    LOOKED_AT,
    STATIC,
    are_same,
    in_order,
    signature_of,
)
from daskgrad.autodiff.programs.store import Entry, Programs, pushed_function
from daskgrad.autodiff.programs.watch import References
from daskgrad.autodiff.programs.ways import Way
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.rules.math_reductions import spread
from daskgrad.autodiff.tape.reverse import taken, trace
from daskgrad.autodiff.tape.traced_call import recorder
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.memory import of_its_own, owned
from daskgrad.autodiff.values.trees import flatten, unflatten

USED = {"delayed", "map_sum", "map_mean", "reduce_sum", "sum", "zip", "stop_gradient", "value"}
USED |= {"scipy"}
RUNS = {"compute", "persist", "visualize"}  # of nodes
PLAIN = {np.zeros, np.array, np.where, np.copy, np.concatenate, spread.fun}
PAIR = flatten((0.0, 0.0))[1]
FAILED = object()
PLAIN_LEAVES = (np.number, np.bool_, *TEXT, datetime.date, datetime.timedelta, enum.Enum)
MOST_KINDS = 256  # of arguments of one function
LAYOUT, CONTIGUOUS = 0x103, (0x101, 0x102, 0x103)  # flags: aligned, in C or Fortran order


class Unusual(Exception):
    """An argument that is not of the usual kinds."""


def kind_of(value: Any, leaves: list[Any]) -> Any:
    """A key of an argument, which calls of one program share; appends its leaves, in the order of
    ``flatten``.

    Raises
    ------
    Unusual
        unless all leaves are plain numbers, text, dates, and arrays in C or Fortran order, in
        lists, tuples, and dicts with strings as keys.
    """
    kind = type(value)
    if kind is np.ndarray:
        flags = value.flags.num & LAYOUT
        if flags not in CONTIGUOUS:
            raise Unusual
        leaves.append(value)
        return value.shape, value.dtype, flags
    if kind is dict or kind is OrderedDict:
        names = tuple(value)
        order = in_order(names)
        if order is None:
            raise Unusual
        order = order if kind is dict else [*names]
        return kind, names, *[kind_of(value[name], leaves) for name in order]
    is_named = issubclass(kind, tuple) and hasattr(kind, "_make")
    if kind is list or kind is tuple or (is_named and not getattr(value, "__dict__", None)):
        return kind, *[kind_of(each, leaves) for each in value]
    if kind in STATIC:
        leaves.append(value)
        return kind, value
    if kind is float or kind is complex or issubclass(kind, PLAIN_LEAVES):
        leaves.append(value)
        return kind
    raise Unusual


def are_unchanged(args: tuple, kinds: tuple, leaves: Sequence[Any]) -> bool:
    """Whether arguments still have these kinds and leaves."""
    after: list[Any] = []
    try:
        are_alike = tuple([kind_of(arg, after) for arg in args]) == kinds[: len(args)]
    except Unusual:
        return False
    return are_alike and all(map(is_, leaves, after))


class KnownArguments(NamedTuple):
    """Arguments of one kind: their entry, and the places of its inputs among their leaves."""

    entry: Entry
    places: Sequence[int]
    are_leaves: bool  # the inputs are all leaves as they are

    def inputs(self, leaves: Sequence[Any]) -> Sequence[Any]:
        return leaves if self.are_leaves else [leaves[place] for place in self.places]


class Whole(Programs):
    """The programs of a derivative, of an objective that calls models.

    ``fun.layout(args)`` are its arguments, and ``fun.recorded(seconds)`` runs on boxes, for an
    ordinary way of so many seconds.
    """

    advice = "leave it out, or pass it as an argument"
    holds = False  # pullbacks
    reason: str | None = None  # why the latest call could not be a program, though nobody looked

    def _start(self, watch: References | None) -> None:
        super()._start(watch)
        self._known: dict[Any, KnownArguments | None] = {}
        self._least: dict[Any, float] = {}  # seconds of the ordinary way

    def _impurity(self, watch: References) -> str | None:
        names = watch.of_package - USED or watch.names & RUNS
        return super()._impurity(watch) or (f"it uses {min(names)!r}" if names else None)

    def call(
        self,
        fun: Any,
        args: tuple,
        otherwise: Callable[[], Any],
        out: Any,
        watch: References | None,
        note: Callable[[Way], None] | None = None,
    ) -> Any:
        """The result of ``otherwise()``, by a program if there is one for such arguments.

        ``out``: arrays for the second part of the result, the gradient; ``watch``: has seen no
        change just now; ``note`` hears which program gave the result.
        """
        if self._cold or self.impurity is not None:
            return self._unseen(otherwise)
        leaves: list[Any] = []
        storage: Sequence[Any] | None = None
        try:
            kinds: Any = []
            for arg in args:  # a loop takes less time than a comprehension, at every call
                kinds.append(kind_of(arg, leaves))
            now, count = self.watch, len(leaves)
            if now is not None and now.inputs:
                leaves += self.references(fun)
            if out is not None:
                kinds.append(kind_of(out, []))
                storage = [out] if type(out) is np.ndarray else flatten(out)[0]
                require_separate(storage, leaves)
        except (Unusual, RecursionError):  # nested too deep: the ordinary way says so
            return otherwise()
        if self.looks:
            kinds += [leaf for leaf in leaves if isinstance(leaf, LOOKED_AT)]
        own, kinds = kinds, (*kinds, *map(kind_of_reference, leaves[count:]))
        known = self._known.get(kinds)
        entry = None if known is None else known.entry
        if entry is not None and entry.reads:
            entry = self.finest(entry, leaves)
        if known is not None and entry is not None and entry.ways and not self.is_due:
            own_watch = entry.watch
            if own_watch is now and (own_watch is watch or not own_watch.has_changed()):
                inputs = leaves if known.are_leaves else known.inputs(leaves)
                result = self._by_program(fun, entry, inputs, storage, note)
                if result is FAILED:
                    return otherwise()
                if result is not None:
                    return result if out is None else (result[0], out)
        if entry is not None and entry.refusal and entry.watch is self.watch:
            return otherwise()
        ways = 0 if entry is None else len(entry.ways)
        is_compared, begin = bool(ways) and self.is_due, clock.processor_seconds()
        if entry is not None and self._is_last(entry):  # a state may come back at every second call
            self.look_at(fun)
        steps = taken.steps
        with self._path_of(fun, entry) as path, self._expecting_names():
            is_on_tapes = is_compared or path.is_noted
            call = partial(on_tapes, otherwise) if is_on_tapes else otherwise
            result, reasons = with_reasons(call)
        seconds = clock.processor_seconds() - begin
        self.look_at(fun)
        if self.watch is not now:
            leaves[count:] = self.references(fun)
            kinds = (*own, *map(kind_of_reference, leaves[count:]))
        if not are_unchanged(args, kinds, leaves):
            self.impurity = "it changes its arguments"
            return result
        if kinds not in self._known and len(self._known) < MOST_KINDS:
            self._known[kinds] = self._find(fun, args, leaves, count, out, result)
        known = self._known.get(kinds)
        entry = None if known is None else self.finest(known.entry, leaves)
        if known is None or entry is None:
            return result
        if reasons and not entry.ways:
            entry.refusal = reasons[0]
            return result
        outputs, tape = self._opened(result)
        if is_compared and entry.ways:
            inputs = known.inputs(leaves)
            by_program = self._by_program(fun, entry, inputs, is_counted=False)
            if by_program is not None and by_program is not FAILED:
                self._compare(fun, by_program, result)
            if by_program is not None:
                return result
        if len(entry.ways) == ways:  # no other thread has made one meanwhile
            least = self._least[kinds] = min(self._least.get(kinds, seconds), seconds)
            layout = with_references(fun.layout(args), leaves[count:])
            length = taken.steps - steps
            if entry.lengths and length < min(entry.lengths):
                entry.lengths.clear()  # its models have got programs
            entry.lengths.add(length)
            self._count(fun.recorded(least), entry, lambda: layout, outputs, tape, seconds, path)
        return result

    def _unseen(self, call: Callable[[], Any]) -> Any:
        result, reasons = with_reasons(partial(super()._unseen, call))
        if reasons and not self._is_vouched:
            self._cold += 1  # calls that cannot be programs bring none nearer
        self.reason = reasons[0] if reasons else None
        return result

    def obstacle(self) -> str | None:
        return super().obstacle() or self.reason

    def _opened(self, result: Any) -> tuple[Sequence[Any], Any]:
        """The outputs in a result, and its tape if its pullback belongs to the program."""
        return flatten(result)[0], None

    def _compare(self, fun: Any, result: Any, expected: Any) -> None:
        self._compared(fun, are_same(flatten(result)[0], flatten(expected)[0]))

    def _by_program(
        self,
        fun: Any,
        entry: Entry,
        inputs: Sequence[Any],
        storage: Sequence[Any] | None = None,
        note: Callable[[Way], None] | None = None,
        is_counted: bool = True,
    ) -> Any:
        """The results of a program, in arrays that nobody else has, or in ``storage``; None if
        there is none for this data; FAILED after any error or warning of NumPy's: the ordinary way
        has its own."""
        self.calls += 1
        for way in entry.ways:
            try:
                if way.context is None:
                    outputs, residuals = kernels.raise_errors(way.program.forward, inputs)
                else:
                    with way.context:
                        outputs, residuals = kernels.raise_errors(way.program.forward, inputs)
            except Diverged:
                continue
            except Exception:
                return FAILED
            if note is not None:
                note(way)
            if is_counted and way.counted:
                count_up(way.counted)
            if self.holds:
                return held_call(fun, entry, way, inputs, outputs, residuals)
            outputs = outputs[: way.structure.num_leaves]
            first = len(outputs) if storage is None else len(outputs) - len(storage)
            for number in range(first):
                if type(outputs[number]) is np.ndarray:
                    outputs[number] = owned(outputs, number)
            if storage is not None:  # once the program has ended well
                for array, gradient in zip(storage, outputs[first:], strict=True):
                    if array is not None:
                        array[...] = gradient
            is_pair = way.structure == PAIR
            return tuple(outputs) if is_pair else unflatten(way.structure, outputs)
        return None

    def _find(
        self, fun: Any, args: tuple, leaves: Sequence[Any], count: int, out: Any, result: Any
    ) -> KnownArguments | None:
        """The entry and inputs of arguments like these, with so many leaves, if programs may take
        them."""
        if out is not None and flatten(out)[1] != flatten(result[1])[1]:
            return None
        layout = with_references(fun.layout(args), leaves[count:])
        signature = signature_of(layout, self.looks)
        entry = self.known_entry(signature)
        if entry is None or signature is None:
            return None
        places = signature.places
        return KnownArguments(entry, places, places == list(range(len(leaves))))

    def _completed(self, fun: Any, way: Way) -> Way:
        if any(map(is_users, way.program.constants.values())):
            raise Unrecordable("it calls a function of the user's, which gets read-only arrays")
        uses_blas = " @ " in way.program.source.text or not all(
            map(is_without_blas, way.program.constants.values())
        )
        context = fun.context if uses_blas else None
        return way._replace(context=context, name=fun.name, calls=fun.calls)


class HeldCall:
    """A call by a program, for any number of cotangents; ``referred`` locks its arrays.

    ``args``: its arguments, which nobody else has.
    """

    args: tuple

    def __init__(self, way: Way, value: Any, residuals: tuple, referred: Any):
        self.value = value
        self.way, self._residuals, self._referred = way, residuals, referred

    def pull(self, cotangents: Sequence[Any]) -> list[Any] | None:
        """The cotangents of all leaves of the arguments, in arrays that nobody else has; None if
        the ordinary way has them, or errors of its own."""
        pairs = zip(cotangents, self.way.program.examples, strict=True)
        taken = [(leaf, example) for leaf, example in pairs if example is not None]
        if not all([fits(*pair) for pair in taken]):
            return None
        inputs = [self._residuals, *[leaf for leaf, _ in taken]]
        try:
            with self.way.context or nullcontext():
                pulled = kernels.raise_errors(self.way.program.backward, inputs)
        except Exception:
            return None
        return [owned(pulled, n) if type(x) is np.ndarray else x for n, x in enumerate(pulled)]


def held_call(
    fun: Any, entry: Entry, way: Way, inputs: Sequence[Any], outputs: list[Any], residuals: tuple
) -> HeldCall:
    """The result of a call by a program whose pullback is kept."""
    referred = None
    if entry.watch.inputs:
        values = inputs[-len(entry.watch.inputs) :]
        residuals, referred = kept(residuals, entry.watch, pushed_function(fun), values)
    return HeldCall(way, unflatten(way.structure, outputs), residuals, referred)


class OrdinaryTape:
    """The pullback of a call by the ordinary way, with which programs are compared."""

    def __init__(self, held: Any):
        self._held = held

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        return flatten(self._held.pull(Cotangent(tuple(cotangents))))[0]

    def held_arrays(self) -> list[Any]:
        return []


class WholePullbacks(Whole):
    """Programs of values and their pullbacks: the result of a call is a ``HeldCall``."""

    holds = True

    def call(self, fun: Any, args: tuple, *others: Any) -> Any:
        has_none = self.is_cold or self.impurity is not None
        own = args if has_none else tuple(map(of_its_own, args))
        result = super().call(fun, own, *others)
        if type(result) is HeldCall:
            result.args = own
        return result

    def obstacle(self) -> str | None:
        return super().obstacle() or self.reason

    def _opened(self, result: Any) -> tuple[Sequence[Any], Any]:
        return flatten(result.value)[0], OrdinaryTape(result)

    def _compare(self, fun: Any, result: HeldCall, expected: Any) -> None:
        outputs, tape = self._opened(expected)
        is_same = are_same(flatten(result.value)[0], outputs)
        seeds = result.way.program.examples
        with np.errstate(all="ignore"):
            pulled = result.pull(seeds)
            is_same &= pulled is None or are_same(pulled, tape.pull(seeds))
        self._compared(fun, is_same)


def on_tapes(call: Callable[[], Any]) -> Any:
    """A call without the models' programs, which may be wrong in the same way as a whole one."""
    token = recorder.set(trace)
    try:
        return call()
    finally:
        recorder.reset(token)


def is_without_blas(constant: Any) -> bool:
    """Whether a constant gives the same bits with any number of BLAS threads."""
    if not callable(constant) or isinstance(constant, np.ufunc | type):
        return True
    return isinstance(getattr(constant, "__self__", None), np.ufunc) or constant in PLAIN


def is_users(constant: Any) -> bool:
    module = getattr(constant, "__module__", None)
    return callable(constant) and module is not None and not is_of_library(module)


def require_separate(arrays: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Raises ``Unusual`` unless a gradient may be written into arrays, and into nothing else."""
    others = [leaf for leaf in leaves if type(leaf) is np.ndarray]
    for array in arrays:
        if array is not None:
            if type(array) is not np.ndarray or not array.flags.writeable:
                raise Unusual
            if any([np.may_share_memory(array, other) for other in others]):
                raise Unusual
            others.append(array)
