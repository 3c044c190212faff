"""The programs of a model: made when they are worth it, compared with the tape, and dropped.

A program pays for itself once it has replaced as many calls of the tape as making it took. So
calls of one signature are compiled when there were as many of them: then this takes at most twice
the time of who knew how many there will be. The latest program of the same function tells how many
that are: about ten where each size makes calls of its own, two where the code is known.

The tape decides what is right. Before a program is used, its values and cotangents are compared
with the tape's, bit by bit; so are those of calls 1, 2, 4, 8 ... 512 of a function's programs, then
of every thousandth. A model whose first comparison fails is left to the tape; a later failure is an
error, since results before it may be wrong.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.program import CompiledTape, pull_as_asked
from daskgrad.autodiff.programs.signatures import (
    Signature,
    are_same,
    classes_in,
    code_in,
    inputs_of,
    may_look,
    opened_layout,
    signature_of,
)
from daskgrad.autodiff.programs.watch import References
from daskgrad.autodiff.programs.ways import BatchProgram, Way, make_way
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import arrays_within, trace
from daskgrad.autodiff.tape.traced_call import Layout, TracedCall
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, function_name

CALLS = 10  # of the tape, that a compilation counts at most
COLD = 6  # calls of a model that nobody vouched for, after which it is looked at
SHARE_OF_WATCH = 0.05  # of a call's time, that may go into comparing large arrays
BYTES_A_SECOND = 1e10  # that are compared
LONGEST = 1024  # calls that are not looked at, where what a model refers to has changed often
SELDOM = 1000  # calls between two comparisons in the end
MOST_SIGNATURES = 1024  # of one model: items may be of many sizes
MOST_WAYS = 8  # through one model, for one signature
MOST_HELD = 2**28  # bytes of a tape: a recording holds all that it and its pullback compute
MOST_BYTES = 2**24  # of the arrays that the programs of one model keep for themselves


class Entry:
    """The calls of one function that have a signature: ``calls`` on the tape since there was a
    new program, ``ways`` that have programs, and why there are no more; ``served``: items of sums,
    one by one; ``batches``: programs of many items, by number of way and stacked inputs."""

    __slots__ = ("batches", "calls", "refusal", "served", "signature", "watch", "ways")

    def __init__(self, signature: Signature, watch: References, refusal: str | None, calls: int):
        self.signature, self.watch = signature, watch
        self.refusal, self.calls = refusal, calls
        self.ways: list[Way] = []
        self.served = 0
        self.batches: dict[Any, BatchProgram | None] = {}


class Programs:
    """The programs of one function, by signature; it does not keep the function alive.

    If nobody vouches for the model, there are none unless its code tells that it is pure.
    """

    def __init__(self, is_vouched: bool = True) -> None:
        self._is_vouched = is_vouched
        self.price = CALLS  # of a program, in calls of the tape: what the latest one took
        self.cold_calls = 0  # of a model at which nobody has looked
        self._cold = 0 if is_vouched else COLD  # further calls
        self._patience = 1  # calls
        self._seconds = 0.0  # that these calls took at least
        self.looks = False  # at integers of NumPy's
        self._start(None, None)

    def _start(self, watch: References | None, impurity: str | None) -> None:
        self.impurity = impurity  # why there are no programs
        self._entries: dict[Any, Entry] = {}
        self._containers: dict[Any, str | None] = {}  # what is impure in structures of arguments
        self._codes: set[Any] = set()  # of programs
        self._nbytes = 0
        self.calls, self._next = 0, 1  # by programs, and the call that is compared next
        self.watch = watch  # of what the model refers to, from the first call on

    @property
    def is_cold(self) -> bool:
        """Whether calls are not looked at yet."""
        return self._cold > 0

    def trace(
        self, fun: Callable, call: TracedCall, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """What ``reverse.trace`` returns, by a program where there is one."""
        if self.is_cold or self.impurity is not None:
            return self._unseen(partial(trace, call, arrays))
        layout, entry = None, call.known
        if entry is None or entry.watch is not self.watch or self.watch.has_changed():
            layout = opened_layout(call.layout())
            entry = self.entry(fun, signature_of(layout, self.looks))
        if entry is None:
            return trace(call, arrays)
        if entry.ways:
            layout = layout or opened_layout(call.layout())
            is_due = self.is_due
            answer = self.run(entry, inputs_of(layout, entry.signature))
            if answer is not None:
                way, outputs, residuals = answer
                if is_due:
                    pull = partial(way.program.pull_examples, residuals)
                    self.check(fun, way, (call, arrays), outputs, pull)
                call.structure = way.structure
                held = residuals, way.tape_nbytes, call, arrays, entry.watch
                return outputs, CompiledTape(way.program, *held)
        begin = clock.seconds()
        outputs, tape = trace(call, arrays)
        seconds = clock.seconds() - begin
        layout_of = lambda: layout or opened_layout(call.layout())  # noqa: E731
        self._count(fun, entry, layout_of, outputs, tape, seconds)
        return outputs, tape

    def _unseen(self, call: Callable[[], Any]) -> Any:
        """A call that is not looked at."""
        self.cold_calls += self.is_cold
        self._cold = max(self._cold - 1, 0)
        begin = clock.seconds()
        result = call()
        seconds = clock.seconds() - begin
        self._seconds = min(self._seconds or seconds, seconds)
        return result

    # -------------------------------------------------------------------------------- signatures

    def entry(self, fun: Callable, signature: Signature | None) -> Entry | None:
        """What is known of the calls of a signature."""
        self.look_at(fun)
        return self.known_entry(signature)

    def look_at(self, fun: Callable, again: bool = False) -> None:
        """Drops the programs that were made before something changed to which the function
        refers. Other threads compile nothing before all is known."""
        if again or self.watch is None or self.watch.has_changed():
            is_new = self.watch is None or any([each.ways for each in self._entries.values()])
            self._patience = 1 if is_new else min(2 * self._patience, LONGEST)
            if not self._is_vouched:  # it may change at each call
                self._cold = max(self._cold, self._patience - 1)
            room = SHARE_OF_WATCH * BYTES_A_SECOND * self._seconds
            watch = References(pushed_function(fun), room, self._is_vouched)
            self._start(watch, None if self._is_vouched else watch.impurity)

    def known_entry(self, signature: Signature | None) -> Entry | None:
        """The same where it is known that nothing has changed."""
        if signature is None or self.impurity is not None:
            return None
        watch, found = self.watch, self._entries.get(signature.key)
        assert watch is not None
        if found is None or found.watch is not watch:  # another thread has just looked
            if len(self._entries) == MOST_SIGNATURES:
                return None
            refusal = self._refusal_of(signature, watch)
            # what changes at each call is seen at the second one that is looked at
            before = 0 if self._entries else min(self.cold_calls, self.price - 2)
            found = self._entries[signature.key] = Entry(signature, watch, refusal, before)
        return found

    def _refusal_of(self, signature: Signature, watch: References) -> str | None:
        """Why no calls with arguments of these classes are compiled."""
        code = code_in(signature.key)
        key = signature.structure, *code
        if key not in self._containers:
            impurity = watch.follow_arguments(classes_in(signature.structure), code)
            self._containers[key] = None if self._is_vouched else impurity
        return self._containers[key]

    # ------------------------------------------------------------------------------------ calls

    @property
    def is_due(self) -> bool:
        """Whether the next call by a program is to be compared with the tape."""
        return self.calls + 1 >= self._next

    def run(self, entry: Entry, inputs: Sequence[Any]) -> tuple[Way, list[Any], tuple] | None:
        """Outputs and residuals, and the program that they are of; ``None`` if the tape is to be
        asked: then it raises the model's error, in the model's own lines, if there is one."""
        self.calls += 1
        for way in entry.ways:
            try:
                outputs, residuals = way.program.forward(*inputs)
            except Diverged:
                continue
            except Exception:
                return None
            return way, outputs, residuals
        return None

    def check(
        self,
        fun: Callable,
        way: Way,
        called: tuple[TracedCall, Sequence[Any]],
        outputs: Sequence[Any],
        pull: Callable[[], Sequence[Any]],
    ) -> None:
        """Compares a call of a program with the tape, and decides when to do so again."""
        expected, tape = trace(*called)
        is_same = are_same(outputs, expected)
        try:
            pulled = pull()
        except Exception:  # nobody has pulled yet: who does gets the tape's answer, or its error
            pulled = None
        if pulled is not None:
            is_same &= are_same(pulled, pull_as_asked(tape, way.program.examples, way.asked))
        self._compared(fun, is_same)

    def _compared(self, fun: Callable, is_same: bool) -> None:
        """A call of a program was compared: decides when to do so again, unless it is wrong."""
        self._next = self.calls + min(self.calls, SELDOM)
        if not is_same:
            raise NondeterministicModelError(
                f"the compiled program of {name_of(fun)!r} and the model itself returned different "
                f"values or gradients for the same arguments, at call {self.calls} of its "
                f"programs; results since the last comparison may be wrong. The model refers to "
                f"something that changes and is not an argument, or draws random numbers: pass "
                f"that as an argument, or say dg.delayed(model, compile=False)"
            )

    # ------------------------------------------------------------------------------ new programs

    def _count(
        self,
        fun: Callable,
        entry: Entry,
        layout_of: Callable[[], Layout],
        outputs: Sequence[Any],
        tape: Any,
        seconds: float,
    ) -> None:
        """Counts a call without a program, which took so long; makes one if it is time to do so."""
        entry.calls += 1
        if entry.calls >= self.price and not entry.refusal and len(entry.ways) < MOST_WAYS:
            entry.calls, entry.refusal = 0, "another thread makes its program"
            entry.refusal = self._add_way(fun, entry, layout_of(), outputs, tape, seconds)
            is_refused = entry.refusal and not entry.ways and self.impurity is None
            if is_refused and not self.looks and may_look(entry.signature.key):
                self.looks = True
                self.look_at(fun, again=True)

    def _add_way(
        self,
        fun: Callable,
        entry: Entry,
        layout: Layout,
        outputs: Sequence[Any],
        tape: Any,
        seconds: float,
    ) -> str | None:
        """Makes a program for the way that a call took, and compares it with the tape, whose
        forward pass took so long; the reason if there is none."""
        begin, signature = clock.seconds(), entry.signature
        arrays = tape.held_arrays() if tape is not None else []
        passed = set(map(id, arrays_within(list(layout.leaves))))  # rows are views
        held = sum([array.nbytes for array in arrays])
        own = sum([array.nbytes for array in arrays if id(array) not in passed])
        if own > MOST_HELD:
            return f"its tape holds {own:,} bytes, which takes NumPy's time, compiled or not"
        try:
            way = self._completed(fun, make_way(fun, layout, signature, name_of(fun)))
            with np.errstate(all="ignore"), way.context or nullcontext():
                own, residuals = way.program.forward(*inputs_of(layout, signature))
                pulled = way.program.pull_examples(residuals)
                middle = clock.seconds()
                examples = way.program.examples
                expected = (
                    pull_as_asked(tape, examples, signature.asked) if tape is not None else []
                )
        except Unrecordable as error:
            return str(error)
        except Exception as error:  # the tape raised none: it is the program's
            return f"its program fails: {type(error).__name__}: {error}"
        end = clock.seconds()
        self.price = min(CALLS, math.ceil((end - begin) / max(seconds + end - middle, 1e-9)))
        if not (are_same(own, outputs) and are_same(pulled, expected)):
            self.impurity = "its program differs from the model"
            return self.impurity
        if entry.watch.has_changed():
            return "it changes what it refers to"
        if way.program.nbytes > MOST_BYTES:
            return (
                f"its program would keep more than {MOST_BYTES:,} bytes of arrays that are no "
                f"arguments: pass them as arguments, or make them read-only"
            )
        self._keep(entry, way._replace(tape_nbytes=held))
        return None

    def _completed(self, fun: Any, way: Way) -> Way:
        """A new program with what else its calls need."""
        return way

    def _keep(self, entry: Entry, way: Way) -> None:
        """Adds a program, and drops those of other signatures if all keep too many bytes."""
        entry.ways.append(way)
        self._nbytes += way.program.nbytes
        for other in list(self._entries.values()):
            if self._nbytes > MOST_BYTES and other is not entry:
                self._nbytes -= sum([each.program.nbytes for each in other.ways])
                other.ways, other.batches = [], {}
        code = way.program.forward.__code__
        if code not in self._codes:
            self._codes.add(code)
            self.calls, self._next = 0, 1

    def alike(self, signature: Signature) -> list[Entry]:
        """The calls that differ from one of this signature in what is differentiated alone."""
        structure, order, _, kinds = signature.key
        sort = structure, order, kinds
        keys = [(each.signature.key, each) for each in list(self._entries.values())]
        return [each for (first, second, _, last), each in keys if (first, second, last) == sort]


def pushed_function(fun: Any) -> Callable:
    """The model of which a function computes tangents; of any other, the function itself."""
    return getattr(fun, "daskgrad_pushed", (fun,))[0]


def name_of(fun: Any) -> str:
    return function_name(pushed_function(fun))
