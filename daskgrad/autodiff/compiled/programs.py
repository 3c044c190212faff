"""The programs of a model: made when they are needed, checked against the tape, and used.

The tape decides what is right. Before a source is used for the first time, its values and
cotangents are compared with the tape's, bit by bit; so are those of calls 4, 9, 19, 39 and so on,
and then as often as takes a fiftieth of the time. A model whose first comparison fails is left to
the tape; a later failure is an error, since results before it may be wrong. A program of another
size, whose recording is the same call by call, is compared with the tape of that recording.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.compiled.families import ALONE_AT, SLOW, Family
from daskgrad.autodiff.compiled.program import (
    CompiledTape,
    Diverged,
    Program,
    Source,
    pull_as_asked,
)
from daskgrad.autodiff.compiled.purity import impurity_of, impurity_of_containers
from daskgrad.autodiff.compiled.recorded_tape import tape_of
from daskgrad.autodiff.compiled.shortcuts import Shortcuts
from daskgrad.autodiff.compiled.signatures import (
    Arguments,
    Signature,
    are_same,
    family_of,
    signature_of,
)
from daskgrad.autodiff.compiled.steps import Unrecordable
from daskgrad.autodiff.compiled.watch import Watch
from daskgrad.autodiff.compiled.ways import Recorded, Way, recorded
from daskgrad.autodiff.compiled.writing import own_nbytes, program_of, source_of
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.autodiff.tape.traced_call import TracedCall
from daskgrad.autodiff.values import clock, cotangents
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, function_name

COLD = 6  # calls of a model that nobody vouched for, after which it is looked at
MOST_SIGNATURES = 1024  # of one model: items may be of many sizes
MOST_SUMS = 64  # over one model, whose shared arguments differ
MOST_WAYS = 8  # through one model, for one signature


class Programs:
    """The programs of one function, by signature; it does not keep the function alive.

    If nobody vouches for the model, there are none unless its code tells that it is pure.
    """

    def __init__(self, is_vouched: bool = True) -> None:
        self._is_vouched = is_vouched
        self.watch: Watch | None = None  # of what the model refers to, from the first call on
        self._entries: dict[Any, Entry] = {}
        self._families: dict[Any, Family] = {}
        self.impurity: str | None = None
        self._cold = 0 if is_vouched else COLD
        self._shortcuts: dict[Any, Shortcuts] = {}
        self._items: dict[Hashable, dict[Hashable, Entry]] = {}

    def shortcuts(
        self, key: tuple[tuple[int, ...], bool, bool, Any], asked: Callable[[tuple], Sequence[int]]
    ) -> Shortcuts | None:
        """Those of the programs, if nothing has changed to which the function refers; the last
        entry of ``key`` tells those apart for which other leaves are ``asked``."""
        if self.watch is None or self.watch.has_changed():
            return None
        found = self._shortcuts.get(key)
        return found or self._shortcuts.setdefault(key, Shortcuts(self, *key[:3], asked))

    def trace(
        self, fun: Callable, call: TracedCall, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """What ``reverse.trace`` returns, by a program where there is one."""
        if self._cold or self.impurity is not None:
            self._cold = max(self._cold - 1, 0)
            return trace(call, arrays)
        if type(call.known) is Family:
            return trace_at_rest(call, arrays, call.known)
        arguments, entry = Arguments(call), call.known
        if entry is None or entry.family.watch is not self.watch or self.watch.has_changed():
            entry = self.entry(fun, signature_of(arguments.layout))
        return trace(call, arrays) if entry is None else entry.trace(call, arrays, arguments)

    def entry(self, fun: Callable, signature: Signature | None) -> "Entry | None":
        """The programs for a signature."""
        self.look_at(fun)
        return self.known_entry(fun, signature)

    def look_at(self, fun: Callable) -> None:
        """Drops the programs that were made before something changed to which the function
        refers. Other threads compile nothing before all is known."""
        if self.watch is None or self.watch.has_changed():
            watch = Watch(pushed_function(fun))
            self.impurity = None if self._is_vouched else impurity_of(pushed_function(fun))
            self._entries, self._families, self._shortcuts, self._items = {}, {}, {}, {}
            self.watch = watch

    def known_items(self, key: Hashable) -> "dict[Hashable, Entry]":
        """A place for the programs for the items of sums that have this in common."""
        return kept_or_made(self._items, key, dict, MOST_SUMS)

    def known_entry(
        self, fun: Callable, signature: Signature | None, family: Family | None = None, met: int = 0
    ) -> "Entry | None":
        """The same where it is known that nothing has changed, and maybe the family; and how often
        it was met before."""
        if signature is None or self.impurity is not None:
            return None
        entry = self._entries.get(signature.key)
        if entry is None and len(self._entries) < MOST_SIGNATURES:
            entry = Entry(family or self.family(fun, signature), signature, met)
            self._entries[signature.key] = entry
        return entry

    def count_sizes(self, signature: Signature) -> tuple[int, int, int]:
        """Of calls that differ from this one in sizes alone, and in what is traced: how many sizes
        there were, those that have programs, and the sources of these."""
        structure, order, _, kinds = family_of(signature.key)
        families = {
            family
            for key, family in self._families.items()
            if (key[0], key[1], key[3]) == (structure, order, kinds)
        }
        served = [each for each in self._entries.values() if each.family in families and each.ways]
        return (
            sum([family.sizes for family in families]),
            len(served),
            len({way.program.forward.__code__ for each in served for way in each.ways}),
        )

    def family(self, fun: Callable, signature: Signature) -> Family:
        """What the calls have in common that differ from one of this signature in sizes alone."""
        key = family_of(signature.key)
        family = self._families.get(key)
        if family is None:
            assert self.watch is not None
            self.watch.follow_containers(signature.structure)
            family = Family(function_name(pushed_function(fun)), self.watch, self._is_vouched)
            if not self._is_vouched:
                family.refusal = impurity_of_containers(signature.structure)
            self._families[key] = family
        return family


def pushed_function(fun: Any) -> Callable:
    """The model of which a function computes tangents; of any other, the function itself."""
    return getattr(fun, "daskgrad_pushed", (fun,))[0]


def trace_at_rest(call: TracedCall, arrays: Sequence[Any], family: Family) -> tuple[list[Any], Any]:
    """By the tape, where that is all there is to be done."""
    begin = clock.seconds()
    found = trace(call, arrays)
    family.calls += 1
    family.count_taped(clock.seconds() - begin)
    return found


class Entry:
    """The programs of one function for one signature, which is one size of a family."""

    def __init__(self, family: Family, signature: Signature, met: int = 0):
        self.family = family
        self._signature = signature
        self.ways: list[Way] = []
        self.refusal = family.refusal
        self._calls = met  # on the tape
        self._structure: int | None = None  # a hash of the last one that had no source
        family.sizes += not met

    @property
    def is_due(self) -> bool:
        """Whether the next call is to be compared with the tape."""
        return self.family.is_due

    def run(self, inputs: Sequence[Any]) -> tuple[Way, list[Any], tuple] | None:
        """Outputs and residuals, and the program that they are of; ``None`` if the tape is to be
        asked: then it raises the model's error, in the model's own lines, if there is one."""
        self.family.calls += 1
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
        self, call: TracedCall, arrays: Sequence[Any], arguments: Arguments
    ) -> tuple[list[Any], Any]:
        """What ``reverse.trace`` returns."""
        if not self.ways and not self._may_adopt():
            if self.refusal:
                return trace(call, arrays)
            self.family.calls += 1
            return self._trace(call, arrays, arguments)
        is_due, begin = self.is_due, clock.seconds()
        inputs = arguments.inputs(self._signature) if self.ways else ()
        found, doubt, is_new = self.run(inputs), "", False
        if found is None and self._may_adopt():
            found, doubt = self._adopt(call, arrays, arguments)
            is_new = True
        if found is not None:
            way, outputs, residuals = found
            call.structure = way.structure
            watch = self.family.watch
            compiled = CompiledTape(way.program, residuals, way.tape_nbytes, call, arrays, watch)
            if is_due and not is_new:
                self._check(call, arrays, way.program, outputs, compiled, begin)
            return outputs, compiled
        results = self._trace(call, arrays, arguments)
        if doubt and not self.ways:  # the tape has raised the model's own errors
            self._refuse(doubt)
        return results

    def _trace(
        self, call: TracedCall, arrays: Sequence[Any], arguments: Arguments
    ) -> tuple[list[Any], Any]:
        """By the tape; writes a program for later calls if it is time to do so."""
        family, begin = self.family, clock.seconds()
        outputs, tape = trace(call, arrays)
        seconds = clock.seconds() - begin
        self._calls += 1
        family.count_taped(seconds)
        if self._is_worth_it(seconds):
            self._add_way(call, arguments, outputs, tape)
        return outputs, tape

    # --------------------------------------------------------------------- when there is no source

    def _is_worth_it(self, seconds: float) -> bool:
        """Whether a program is to be written for the way of a call that took so long."""
        family = self.family
        if self.refusal or len(self.ways) >= MOST_WAYS or not family.is_hot:
            return False
        if family.sizes == 1:
            return True
        if not family.may_spend() or seconds > SLOW:
            return False
        if self.ways or self._calls >= ALONE_AT or not family.has_sources:
            return True
        return family.is_common(self._structure, self)

    def _add_way(
        self, call: TracedCall, arguments: Arguments, outputs: Sequence[Any], tape: Any
    ) -> None:
        """Writes a program for the way that this call took, and compares it with the tape; tells
        why, if there is none."""
        begin, inputs, learnt = clock.seconds(), arguments.inputs(self._signature), None
        try:
            with np.errstate(all="ignore"):
                found = recorded(call.fun.fun, arguments.layout, self._signature)
                source = self.family.source(found.recording)
                if source is None:
                    source = source_of(found.recording, self.family.name, found.order)
                    self.family.require_room(source.nbytes)
                way = Way(program_of(source, found.recording), found.structure)
                self.family.require_room(own_nbytes(way.program, found.recording))
                ran = clock.seconds()
                own, residuals = way.program.forward(*inputs)
                pulled = way.program.pull_examples(residuals)
                middle = clock.seconds()
                expected = pull_as_asked(tape, way.program.examples, self._signature.asked)
                self.family.count_compared(middle - ran, clock.seconds() - middle)
        except Unrecordable as error:
            self._refuse(str(error))
        except Exception as error:  # the tape raised none: it is the program's
            self._refuse(f"its program fails: {type(error).__name__}: {error}")
        else:
            if not (are_same(own, outputs) and are_same(pulled, expected)):
                self._refuse("its program differs from the model")
            elif self.family.watch.has_changed():
                self._refuse("it changes what it refers to")
            else:
                self.ways.append(way._replace(tape_nbytes=nbytes_of(tape)))
                learnt = found.recording, source
        self.family.count_written(clock.seconds() - begin)
        if learnt is not None:
            self.family.learn(*learnt)

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        if not self.ways:
            self.family.failures += 1

    # --------------------------------------------------------------------- when there may be one

    def _may_adopt(self) -> bool:
        """Whether to look for a known source, for a size that has no program, or another way."""
        family = self.family
        if self.refusal or family.sizes == 1 or not family.has_sources:
            return False
        if self._structure is not None and not family.knows(self._structure):
            return False  # to write it comes first
        if self.ways:
            return len(self.ways) < MOST_WAYS and family.may_try(True)
        return family.may_try(self._calls > 0)

    def _adopt(
        self, call: TracedCall, arrays: Sequence[Any], arguments: Arguments
    ) -> tuple[tuple[Way, list[Any], tuple] | None, str]:
        """Records a call, and runs a program of a known source, if that is its source; and what
        may be wrong with it."""
        begin, found, doubt = clock.seconds(), None, ""
        try:
            made = recorded(call.fun.fun, arguments.layout, self._signature)
            source = self.family.source(made.recording)
            if source is None:
                self._structure = hash(made.recording.structure)
            else:
                found = self._run_new(made, source, arguments.inputs(self._signature), arrays)
            made.recording.release()
        except Unrecordable as error:
            doubt = str(error)
        except Exception as error:
            doubt = f"its program fails: {type(error).__name__}: {error}"
        self.family.count_trial(clock.seconds() - begin, found is not None)
        return found, doubt

    def _run_new(
        self, made: Recorded, source: Source, inputs: Sequence[Any], arrays: Sequence[Any]
    ) -> tuple[Way, list[Any], tuple]:
        """Outputs and residuals of a program of a known source, which are compared first."""
        way = Way(program_of(source, made.recording), made.structure)
        self.family.require_room(own_nbytes(way.program, made.recording))
        begin = clock.seconds()
        outputs, residuals = way.program.forward(*inputs)
        with np.errstate(all="ignore"):  # the forward pass has raised or warned
            pulled = way.program.pull_examples(residuals)
            own = clock.seconds() - begin
            expected, tape = tape_of(made.recording, made.order)
            middle = clock.seconds()
            slopes = pull_as_asked(tape, way.program.examples, self._signature.asked)
            self.family.count_compared(own, clock.seconds() - middle)
        if not (are_same(outputs, expected) and are_same(pulled, slopes)):
            raise Unrecordable("the program of another size differs from the model")
        if cotangents.nbytes(arrays) > cotangents.SMALL:  # otherwise nobody asks
            way = way._replace(tape_nbytes=nbytes_of(tape))
        self.ways.append(way)
        return way, outputs, residuals

    # ------------------------------------------------------------------------------ later checks

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
        middle = clock.seconds()
        expected, other = trace(call, arrays)
        is_right = are_same(outputs, expected)
        slopes = pull_as_asked(other, program.examples, self._signature.asked)
        is_right = is_right and are_same(pulled, slopes)
        end = clock.seconds()
        if not is_right:
            name, calls = self.family.name, self.family.calls
            raise NondeterministicModelError(
                f"the compiled program of {name!r} and the model itself returned different values "
                f"or gradients for the same arguments, at call {calls}; results since the last "
                f"comparison may be wrong. The model refers to something that changes and is not "
                f"an argument, or draws random numbers: pass that as an argument, or say "
                f"dg.delayed(model, compile=False)"
            )
        self.family.schedule(middle - begin, end - middle)


def nbytes_of(tape: Any) -> int:
    return sum([array.nbytes for array in tape.held_arrays()])
