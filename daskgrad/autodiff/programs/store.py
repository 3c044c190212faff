"""The programs of a model: made when they are worth it, compared with the tape, and dropped.

A program pays for itself once it has replaced as many calls of the tape as making it took. So a
signature is compiled after as many calls on the tape: if its caller had known the number of calls,
this would have saved half of the time at most. The price is the cost of the function's latest
program: about ten calls where each size makes calls of its own, two where the code is known.

The tape decides. Before a program is used, its values and cotangents are compared with the tape's,
bit by bit; so are calls 1, 2, 4, 8 ... 512 of a function's programs, and then every thousandth. If
the first comparison fails, the model is left to the tape; a later failure is an error, since
earlier results may be wrong.
"""

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.boxes import NotYet, Unrecordable
from daskgrad.autodiff.programs.carried import Read
from daskgrad.autodiff.programs.counters import count_up, counting
from daskgrad.autodiff.programs.paths import Path
from daskgrad.autodiff.programs.program import CompiledTape, pull_as_asked
from daskgrad.autodiff.programs.purity import Ran, merge
from daskgrad.autodiff.programs.reasons import note_steps
from daskgrad.autodiff.programs.references import Folded, kept, references_of, with_references
from daskgrad.autodiff.programs.signatures import (
    READABLE,
    Signature,
    are_same,
    carried_places,
    classes_in,
    code_in,
    constant_of,
    inputs_of,
    is_readable,
    may_look,
    opened_layout,
    signature_of,
    with_read,
)
from daskgrad.autodiff.programs.watch import SMALL, References, impurity_of_called
from daskgrad.autodiff.programs.ways import BatchProgram, Way, make_batch, make_way
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import arrays_within, trace
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedCall
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, function_name

CALLS = 10  # of the tape: the highest price of a program
COLD = 6  # calls of a model that nobody vouched for, before its code is read
SHARE_OF_WATCH = 0.2  # of a call's time, for comparisons of large arrays, which programs save
BYTES_A_SECOND = 1e10  # of such comparisons
PAUSE = 16  # calls after an impure path, at least
TOO_LONG = 16  # times as many calls pass after each program that takes too long
LONGEST = 1024  # calls without a look at a model whose references have changed often
SELDOM = 1000  # calls between two comparisons in the end
MOST_SIGNATURES = 1024  # of one model: items may be of many sizes
FIRST_WAYS = 8  # through one model, for one signature; the latest of more must have served
MOST_WAYS = 1024  # items of a sum may take a way each
MOST_TRIES = 128  # programs for one call: they take as long as the tape
FEW_WAYS = 2  # seen by the lengths of their tapes: other calls of an objective's first evaluation
MOST_HELD = 2**28  # bytes of a tape: a recording holds all that it and its pullback compute
MOST_BYTES = 2**24  # of arrays that the programs of one model copied


@dataclass(slots=True, eq=False)
class Entry:
    """One function's calls of a signature: ``calls`` on the tape since the latest program, and the
    ``lengths`` of these tapes; ``ways`` that have programs, and the ``refusal`` of more;
    ``served``: calls by programs since the latest one; ``hints``: for items, the number of the way
    that served one last; ``patience``: prices of the next program, after impure paths;
    ``batches``: programs of many items, by number of way and stacked inputs; ``reads``: places of
    carried arguments that the model reads, on its other ways: calls with each of their constants
    have entries of their own."""

    signature: Signature
    watch: References
    calls: int
    refusal: str | None = None
    patience: int = 1
    ways: list[Way] = field(default_factory=list)
    served: int = 0
    hints: dict[Any, int] = field(default_factory=dict)
    batches: dict[Any, BatchProgram | None] = field(default_factory=dict)
    reads: Sequence[int] = ()
    finer: dict[Any, "Entry"] = field(default_factory=dict)  # by these constants
    passed: Sequence[weakref.ref] = ()  # functions, with which it goes
    since: int = 0  # calls of the function without a program, before there was one
    lengths: set[int] = field(default_factory=set)

    @property
    def may_have_batches(self) -> bool:
        """Whether batches were not found to take more time."""
        return not self.batches or any([batch is not None for batch in self.batches.values()])

    def drop_ways(self) -> None:
        self.ways, self.batches, self.hints = [], {}, {}


class Programs:
    """The programs of one function, by signature; it does not keep the function alive.

    A model that nobody vouches for has programs only if its code is pure; if the text does not say
    so (``by_path``), what runs of it. ``is_shared``: functions that refer to other arrays and
    numbers have the same programs, whose inputs these are.
    """

    advice = "leave it out, pass it as an argument, or vouch for the model with compile=True"
    is_exact = True  # each has the tape's bits, so that calls may be counted before there is one

    def __init__(self, is_vouched: bool = True, is_shared: bool = False) -> None:
        self._is_vouched, self.is_shared = is_vouched, is_shared
        self.price = CALLS  # of a program, in calls of the tape
        self.cold_calls = 0  # before the model's code was read
        self._cold = 0 if is_vouched else COLD  # calls to come before that
        self._patience = 1  # calls
        self._seconds = 0.0  # of the quickest of these calls
        self.looks = False  # whether the model looks at integers of NumPy's
        # bytes of arrays to which it refers and that are no inputs; none once something has changed
        self._above: float = 0 if is_shared else SMALL
        self._refused: set[float] = set()  # since inputs decide something, or are too many
        self._constants: frozenset[Any] = frozenset()  # larger ones, by their ways
        self.impurity_of_path: str | None = None  # the latest one that was judged
        self.refusal: str | None = None  # of the latest call that was recorded in vain
        self.taped = 0  # calls without a program
        self._start(None)

    def _start(self, watch: References | None) -> None:
        self.impurity: str | None = None  # why there are no programs
        if self.is_shared and watch is not None and watch.has_constants:
            self.impurity = "it refers to arrays or numbers that are no inputs"
        self.by_path = watch is not None and bool(self._impurity(watch)) and not self._is_vouched
        self._entries: dict[Any, Entry] = {}
        self._followed: set[Any] = set()  # structures of arguments
        self._read: dict[Any, set[int]] = {}  # places in structures that a first program reads
        self._codes: set[Any] = set()  # of programs
        self._nbytes = 0
        self.calls, self._next = 0, 1  # calls of programs, and the next one that is compared
        self.watch = watch  # over the model's references, from the first call on

    @property
    def is_cold(self) -> bool:
        """Whether calls are not looked at yet."""
        return self._cold > 0

    def trace(
        self, fun: Callable, call: TracedCall, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """The results of ``reverse.trace``, by a program if there is one."""
        if self.is_cold or self.impurity is not None:
            return self._unseen(partial(trace, call, arrays))
        (entry, hint), layout, watch = call.known or (None, 0), None, self.watch
        if entry is None or entry.watch is not watch or watch.inputs or watch.has_changed():
            self.look_at(fun)
            layout, watch = self.layout_of(fun, call), self.watch
            entry = self.known_entry(signature_of(layout, self.looks))
            if entry is not None and entry.watch is not watch:  # another thread has just looked
                return trace(call, arrays)
        while entry is not None and (entry.ways or entry.reads):
            layout = layout or self.layout_of(fun, call)
            is_due = self.is_due
            answer = None
            if entry.ways:
                answer = self.run(entry, inputs_of(layout, entry.signature), hint)
            if answer is not None:
                return self._answered(fun, entry, layout, (call, arrays), answer, is_due)
            if not entry.reads:
                break
            entry, hint = self.finer(entry, layout.leaves), 0
        if entry is None:
            return trace(call, arrays)
        if self._is_last(entry):  # and will be recorded; the call may set attributes of arguments
            layout = layout or self.layout_of(fun, call)
        begin = clock.thread_seconds()
        with self._path_of(fun, entry) as path, self._expecting_names():
            outputs, tape = trace(call, arrays)
        seconds = clock.thread_seconds() - begin
        layout_of = lambda: layout or self.layout_of(fun, call)  # noqa: E731
        entry.lengths.add(tape.steps)
        self._count(fun, entry, layout_of, outputs, tape, seconds, path)
        return outputs, tape

    def _answered(
        self,
        fun: Callable,
        entry: Entry,
        layout: FlatArguments,
        called: tuple[TracedCall, Sequence[Any]],
        answer: tuple,
        is_due: bool,
    ) -> tuple[list[Any], CompiledTape]:
        """The results of a call by a way, compared with the tape if it is due."""
        way, outputs, residuals, *_ = answer
        if is_due:
            pull = partial(way.program.pull_examples, residuals)
            self.check(fun, way, called, outputs, pull)  # which counts
        elif way.counted:
            count_up(way.counted)
        called[0].structure = way.structure
        watched: Any = entry.watch
        if watched.inputs:
            values = layout.leaves[-len(watched.inputs) :]
            residuals, watched = kept(residuals, watched, pushed_function(fun), values)
        held = residuals, way.tape_nbytes, *called, watched
        return outputs, CompiledTape(way.program, *held)

    def layout_of(self, fun: Callable, call: Any) -> FlatArguments:
        """The arguments of a call, and the references that are inputs."""
        return with_references(opened_layout(call.layout()), self.references(fun))

    def references(self, fun: Callable) -> list[Any]:
        """The arrays and numbers to which a function refers that are inputs."""
        for above in (self._above, math.inf):
            watch = self.watch
            values = [] if watch is None else references_of(pushed_function(fun), watch)
            if values is not None:
                return values
            self._above = above  # none if the reader does not find what the watch has seen
            self.look_at(fun, again=True)
        return []

    def _unseen(self, call: Callable[[], Any]) -> Any:
        """A call of a model that gets no programs, or not yet."""
        self.cold_calls += self.is_cold
        self.taped += 1
        self._cold = max(self._cold - 1, 0)
        begin = clock.thread_seconds()
        result = call()
        seconds = clock.thread_seconds() - begin
        self._seconds = min(self._seconds or seconds, seconds)
        return result

    def obstacle(self) -> str | None:
        """Why there are no programs, with a file and a line, and the remedy."""
        reason = self.impurity or (self.by_path and self.impurity_of_path) or None
        if reason is None:
            return self.refusal
        return f"{reason if self.watch is None else self.watch.with_place(reason)}; {self.advice}"

    # -------------------------------------------------------------------------------- signatures

    def look_at(self, fun: Callable, again: bool = False) -> None:
        """Drops all programs if a reference of the function has changed. Other threads compile
        nothing before all is known."""
        if again or self.watch is None or self.watch.has_changed():
            is_new = self.watch is None or self.has_programs()
            if self.watch is not None and not again and self._above == SMALL:
                self._above, self._constants = min({0, SMALL} - self._refused), frozenset()
            self._patience = 1 if is_new else min(2 * self._patience, LONGEST)
            self._cold = max(self._cold, self._patience - 1)  # it may change at each call
            self._start(self.watch_over(fun))

    def watch_over(self, fun: Callable, ran: Ran | None = None) -> References:
        """A watch over the function's references; large arrays among them are inputs, and all
        arrays if there are too many to compare them."""
        base = pushed_function(fun)
        room = SHARE_OF_WATCH * BYTES_A_SECOND * self._seconds
        least = self._above if getattr(fun, "takes_others", base is fun) else math.inf
        settings = base, room, self._is_vouched, ran
        watch = References(*settings, least, self._constants)
        if watch.is_long and least == SMALL and 0 not in self._refused:
            watch = References(*settings, 0, self._constants)
        return References(*settings, math.inf) if watch.is_torn else watch

    def _impurity(self, watch: References) -> str | None:
        """Why calls may differ though no reference has changed."""
        return watch.impurity

    def known_entry(self, signature: Signature | None) -> Entry | None:
        """The entry of a signature, if the caller knows that no reference has changed."""
        if signature is None or self.impurity is not None:
            return None
        watch, entry = self.watch, self._entries.get(signature.key)
        assert watch is not None
        if entry is None or entry.watch is not watch:  # another thread has just looked
            if len(self._entries) == MOST_SIGNATURES:
                return None
            if not self.by_path:
                self._follow_arguments(signature, watch)
            # a reference that changes at each call is seen at the second look
            before = 0 if self._entries else min(self.cold_calls, self.price - 2)
            entry = self._entries[signature.key] = Entry(signature, watch, before)
            entry.passed = self._passed(signature)
            may_ask = watch.impurity or watch.is_doubtful  # for identities
            read = self._read.get(signature.structure, ())  # for other sizes, too
            kinds = signature.key[-1]
            entry.reads = [
                place
                for place in carried_places(signature)
                if may_ask or place in read or kinds[place][1] in watch.compared
            ]
        return entry

    def _passed(self, signature: Signature) -> list[weakref.ref]:
        """Weak references to functions among the arguments, with which their entry goes."""
        here, key, code = weakref.ref(self), signature.key, key_of_code(signature)

        def forget(_: Any) -> None:
            programs = here()
            if programs is not None:
                programs._entries.pop(key, None)
                programs._followed.discard(code)

        functions = [thing() for thing in code_in(key) if type(thing) is weakref.ref]
        return [weakref.ref(fun, forget) for fun in functions]

    def finer(self, entry: Entry, leaves: Any) -> Entry | None:
        """The entry of calls with the same constants where the model reads them; ``leaves`` by
        their places."""
        read = tuple([leaves[place] for place in entry.reads])  # the signature has their types
        if not (READABLE.issuperset(map(type, read)) or all(map(is_readable, read))):
            return None
        finer = entry.finer.get(read)
        if finer is None:
            constants = dict(zip(entry.reads, map(constant_of, read), strict=True))
            finer = self.known_entry(with_read(entry.signature, constants))
            if finer is not None:
                entry.finer[read] = finer
        return finer

    def finest(self, entry: Entry | None, leaves: Sequence[Any]) -> Entry | None:
        """The entry of calls with the same constants wherever the model reads them."""
        while entry is not None and entry.reads:
            entry = self.finer(entry, leaves)
        return entry

    def _follow_arguments(self, signature: Signature, watch: References) -> None:
        """Has a watch see what the arguments' classes refer to, and functions among them."""
        key = key_of_code(signature)
        if key not in self._followed:
            self._followed.add(key)
            structure, *functions = key
            is_pure = watch.follow_arguments(classes_in(structure), functions) is None
            if not (is_pure or self._is_vouched or self.by_path):
                self.by_path = True
                for entry in self._entries.values():
                    entry.drop_ways()
                self._nbytes, self._followed = 0, set()

    # -------------------------------------------------------------------------------------- paths

    def _is_last(self, entry: Entry) -> bool:
        """Whether the next call without a program is the last one before there is one. Tapes of
        many lengths are many ways; each has to pay for its program."""
        ways = len(entry.lengths) if len(entry.lengths) > FEW_WAYS else 1
        is_time = entry.calls + 1 >= self.price * entry.patience * ways
        most = MOST_WAYS if entry.served >= self.price else FIRST_WAYS
        return is_time and not entry.refusal and len(entry.ways) < most

    def _path_of(self, fun: Callable, entry: Entry | None) -> Path:
        """A context for a call without a program, which notes its path if that will be judged; the
        function itself is watched if an equal one is."""
        is_last = entry is not None and self._is_last(entry)
        path = Path(self.by_path and is_last)
        if is_last and self.watch is not None and self.watch.of() is not pushed_function(fun):
            path.watch = self.watch_over(fun)
        return path

    def _judge(self, fun: Callable, entry: Entry, path: Path) -> str | None:
        """Why calls on a new path may differ; if they do not, the watch sees what it refers to."""
        before = self.watch
        assert before is not None
        assert path.ran is not None
        ran = path.ran if before.ran is None else merge(dict(before.read), path.ran)
        watch = self.watch_over(fun, ran)
        followed, self._followed = self._followed, set()
        for other in (entry, *[other for other in self._entries.values() if other.ways]):
            self._follow_arguments(other.signature, watch)
        self.impurity_of_path = impurity = self._impurity(watch) or watch.impurity_of(path)
        if impurity is not None or before.has_changed():
            self._followed = followed
            return impurity
        if len(watch.inputs) != len(before.inputs):
            self._entries = {}
        for other in self._entries.values():
            other.watch = watch
        self.watch = watch
        return None

    @contextmanager
    def _expecting_names(self) -> Iterator[None]:
        """A context for a call, after which names are looked for again if one was not there."""
        try:
            yield
        except (AttributeError, NameError):
            self.watch = None
            raise

    def _is_known(self, entry: Entry, path: Path) -> bool:
        """Whether the watch sees all to which a path refers."""
        return key_of_code(entry.signature) in self._followed and entry.watch.knows(path)

    def _wait(self, fun: Callable, entry: Entry) -> None:
        """Puts off the next look at a kind of calls whose path is impure, and at all if no kind has
        programs; the next call may go another way."""
        is_first = entry.patience == 1
        entry.patience = min(2 * entry.patience, LONGEST)
        entry.calls = self.price * entry.patience if is_first else 0
        if not (is_first or self.has_programs()):
            self._patience = max(self._patience, PAUSE)
            self.look_at(fun, again=True)

    # ------------------------------------------------------------------------------------ calls

    @property
    def is_due(self) -> bool:
        """Whether the next call by a program is to be compared with the tape."""
        return self.calls + 1 >= self._next

    def run(
        self, entry: Entry, inputs: Sequence[Any], hint: int = 0
    ) -> tuple[Way, list[Any], tuple, int] | None:
        """A way that serves the inputs, its outputs and residuals, and its number; ``None`` if the
        call is for the tape, which raises the model's error in the model's own lines. ``hint``:
        the number of the way that is expected, or minus how many ways are known not to serve."""
        self.calls += 1
        ways = entry.ways
        first = max(-hint, 0)
        numbers: Iterable[int] = range(first, min(len(ways), first + MOST_TRIES))
        for number in itertools.chain([hint], numbers) if 0 < hint < len(ways) else numbers:
            way = ways[number]
            try:
                outputs, residuals = way.program.forward(*inputs)
            except Diverged:
                continue
            except Exception:
                return None
            entry.served += 1
            note_steps(way.program.steps)
            return way, outputs, residuals, number
        return None

    def check(
        self,
        fun: Callable,
        way: Way,
        called: tuple[TracedCall, Sequence[Any]],
        outputs: Sequence[Any],
        pull: Callable[[], Sequence[Any]],
    ) -> None:
        """Compares a call of a program with the tape."""
        expected, tape = trace(*called)
        is_same = are_same(outputs, expected)
        try:
            pulled = pull()
        except Exception:  # whoever pulls gets the tape's answer, or its error
            pulled = None
        if pulled is not None:
            is_same &= are_same(pulled, pull_as_asked(tape, way.program.examples, way.asked))
        self._compared(fun, is_same)

    def _compared(self, fun: Callable, is_same: bool) -> None:
        """Decides when a call is compared next, unless this comparison failed."""
        self._next = self.calls + min(self.calls, SELDOM)
        if not is_same:
            raise NondeterministicModelError(self._difference(name_of(fun)))

    def _difference(self, name: str) -> str:
        """The error of a comparison that failed."""
        return (
            f"the compiled program of {name!r} and the model itself returned different "
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
        layout_of: Callable[[], FlatArguments],
        outputs: Sequence[Any],
        tape: Any,
        seconds: float,
        path: Path,
    ) -> None:
        """Counts a call without a program, of so many seconds; makes a program if it is time.

        The call after the first one on a path shows that it changes nothing to which it refers.
        """
        is_last = self._is_last(entry)
        entry.calls += 1
        self.taped += 1
        if self.by_path and (path.ran is None or entry.watch is not self.watch):
            return
        if is_last and self.by_path and not self._is_known(entry, path):
            if self._judge(fun, entry, path) is not None:
                self._wait(fun, entry)
        elif is_last and path.watch is not None and path.watch.has_changed():
            entry.refusal = "it changes what it refers to"
        elif is_last and not entry.watch.has_changed():
            entry.calls, entry.lengths = 0, set()
            entry.refusal = "another thread makes its program"
            entry.refusal = self._add_way(fun, entry, layout_of(), outputs, tape, seconds)
            is_refused = entry.refusal and not entry.ways and self.impurity is None
            self.refusal = entry.refusal or self.refusal
            if entry.reads:
                finer = self.finer(entry, layout_of().leaves)
                if finer is not None:
                    finer.calls = self.price
                    self._count(fun, finer, layout_of, outputs, tape, seconds, path)
            elif is_refused:
                self._look_otherwise(fun, entry, not self.has_programs())

    def _look_otherwise(self, fun: Callable, entry: Entry, may_drop: bool) -> bool:
        """Whether a call that was recorded in vain may be a program with other constants, or if
        other programs ``may`` be dropped, with more."""
        if not self._constants <= entry.watch.constants:
            pass
        elif entry.watch.inputs and may_drop:
            self._refused.add(entry.watch.least)
            self._above = math.inf if SMALL in self._refused else SMALL
        elif not self.looks and may_look(entry.signature.key):
            self.looks = True
        else:
            return False
        self.look_at(fun, again=True)
        return True

    def _add_way(
        self,
        fun: Callable,
        entry: Entry,
        layout: FlatArguments,
        outputs: Sequence[Any],
        tape: Any,
        seconds: float,
    ) -> str | None:
        """Makes a program for a call's way, and compares it with the tape, whose forward pass took
        so many seconds; returns the reason if there is none."""
        begin, signature = clock.thread_seconds(), entry.signature
        arrays = tape.held_arrays() if tape is not None else []
        passed = set(map(id, arrays_within(list(layout.leaves))))  # rows are views
        held = sum([array.nbytes for array in arrays])
        computed = sum([array.nbytes for array in arrays if id(array) not in passed])
        if computed > MOST_HELD:
            return f"its tape holds {computed:,} bytes, which takes NumPy's time, compiled or not"
        try:
            with counting(entry.watch.counters()) as counted:
                way = self.make_way(fun, layout, signature, name_of(fun), entry.watch)
            way = self._completed(fun, way)
            if not way.program.is_exact:  # each call of it may have an error of its own
                self._keep(entry, way._replace(tape_nbytes=held, counted=counted))
                return None
            called = self.by_path and impurity_of_called(list(way.program.constants.values()))
            if called:
                return called
            with np.errstate(all="ignore"), way.context or nullcontext():
                start = clock.processor_seconds()
                results, residuals = way.program.forward(*inputs_of(layout, signature))
                if clock.processor_seconds() - start > getattr(fun, "longest", math.inf):
                    entry.patience = min(TOO_LONG * entry.patience, LONGEST)
                    return None
                pulled = way.program.pull_examples(residuals)
                middle = clock.thread_seconds()
                examples = way.program.examples
                expected = (
                    pull_as_asked(tape, examples, signature.asked) if tape is not None else []
                )
        except NotYet as reason:
            self.refusal = str(reason)
            return None
        except Folded as error:
            self._constants |= {*error.ways}
            return str(error)
        except Read as error:
            entry.reads = error.places
            if not entry.ways:
                self._read.setdefault(signature.structure, set()).update(error.places)
            return str(error)
        except Unrecordable as error:
            return str(error)
        except Exception as error:  # the tape raised none: it is the program's
            return f"its program fails: {type(error).__name__}: {error}"
        end = clock.thread_seconds()
        self.price = min(CALLS, math.ceil((end - begin) / max(seconds + end - middle, 1e-9)))
        is_right = are_same(results[: len(outputs)], outputs) and are_same(pulled, expected)
        if not (is_right or entry.watch.inputs):
            self.impurity = "its program differs from the model"
            return self.impurity
        if not is_right:
            return "its program with its references as inputs differs from the model"
        if entry.watch.has_changed():
            return "it changes what it refers to"
        if way.program.nbytes > MOST_BYTES:
            return (
                f"its program would keep more than {MOST_BYTES:,} bytes of arrays that are no "
                f"arguments: pass them as arguments, or make them read-only"
            )
        self._keep(entry, way._replace(tape_nbytes=held, counted=counted))
        return None

    def make_way(self, *settings: Any) -> Way:
        return make_way(*settings)

    def make_batch(self, way: Way, *settings: Any) -> BatchProgram | None:
        return make_batch(*settings)

    def _completed(self, fun: Any, way: Way) -> Way:
        """A way with all that calls of its program need."""
        return way

    def _keep(self, entry: Entry, way: Way) -> None:
        """Adds a program; drops programs of other signatures if all keep too many bytes."""
        entry.since = entry.since or self.taped
        entry.ways.append(way)
        if len(entry.ways) >= FIRST_WAYS:
            entry.served = 0
        self._nbytes += way.program.nbytes
        for other in list(self._entries.values()):
            if self._nbytes > MOST_BYTES and other is not entry:
                self._nbytes -= sum([way.program.nbytes for way in other.ways])
                other.drop_ways()
        code = way.program.forward.__code__
        if code not in self._codes:
            self._codes.add(code)
            self.calls, self._next = 0, 1

    def has_programs(self) -> bool:
        """Whether calls of some kind are compiled."""
        return any([entry.ways for entry in self.entries()])

    def entries(self) -> list[Entry]:
        """All kinds of calls, by the constants that they read, too."""
        return list(self._entries.values())

    def alike(self, signature: Signature) -> list[Entry]:
        """The entries of calls that differ in their differentiated arguments alone."""
        structure, order, _, kinds = signature.key
        entries = [(entry.signature.key, entry) for entry in self.entries()]
        return [entry for (s, o, _, k), entry in entries if (s, o, k) == (structure, order, kinds)]


def key_of_code(signature: Signature) -> tuple:
    """The structure of arguments, whose classes have code, and the functions among them."""
    return signature.structure, *code_in(signature.key)


def pushed_function(fun: Any) -> Callable:
    """The model whose tangents a function computes; of any other, the function itself."""
    return getattr(fun, "daskgrad_pushed", (fun,))[0]


def name_of(fun: Any) -> str:
    return function_name(pushed_function(fun))
