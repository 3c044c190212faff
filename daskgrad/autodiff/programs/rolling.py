"""Rolling: repeated calls of a list become one call of a loop, and loops become loops of loops.

A Python loop in a model is recorded turn by turn. Calls that may be turns of one loop have the same
token: function, kinds of arguments and value, constants that decide on shapes. A period is a
distance between equal runs of tokens. The references of all calls are numbers, a row for each turn,
so that NumPy tells how each argument goes from turn to turn; turns that differ stay outside.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from types import BuiltinMethodType
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.calls import (
    OPERATORS,
    STATEMENTS,
    CallList,
    NumpyCall,
    TurnLoop,
    add_to,
    all_calls,
    calls_in,
    chained,
    constant_of_turn,
    cut,
    loop_of,
    mapped,
    may_raise,
    plus,
    replaced,
    value_of,
)
from daskgrad.autodiff.programs.rewrites import VIEWS, key_of, makes_new, not_shared

LEAST = 300  # calls of a list that is looked at
LEAST_TURNS, LEAST_CALLS = 4, 48  # of a loop; calls of all turns
GRAM = 6  # calls of a run by which periods are found
MOST_PERIODS, MOST_PHASES, MOST_DEPTH = 24, 3, 4
MOST_ROUNDS = 8  # loops within loops
SMALL = 2**10  # bytes of arrays that are compared, which a turn may make anew
KEPT = 2**16  # bytes of a value in all turns, if few turns hand it out
VARYING = (float, complex, np.ndarray, np.generic)  # constants that may differ from turn to turn
INDEXED = {operator.getitem, add_to}  # their second argument is an index
OF_NUMBERS = {plus, *OPERATORS}  # they take Python's integers, as ufuncs do
CONSTANT_PART = object()  # what follows in a token is a constant
CONSTANT, FIXED, WITHIN, BEFORE, ROWS = range(5)  # how an argument goes from turn to turn


def rolled(program: CallList) -> CallList:
    """The list with loops in place of repeated calls; it has the same bits."""
    if len(program.calls) < LEAST:
        return program
    program = with_first(program)
    tokens = Tokens(program.inputs)
    for _ in range(MOST_ROUNDS):
        looked_at = Round(program, tokens)
        spans = looked_at.spans()
        if not spans:
            break
        program = looked_at.with_loops(spans)
    return program


def with_first(program: CallList) -> CallList:
    """The list with calls that are repeated with the same arguments, which depend on no turn, once;
    at the beginning of their pass, unless a call before them may end the program."""
    alone, alike = not_shared(program), {*program.inputs}
    same, known = dict[NumpyCall, NumpyCall](), dict[Any, NumpyCall]()
    parts = list(map(operands_of, program.calls))
    for call, operands in zip(program.calls, parts, strict=True):
        if makes_new(call) and call not in alone and alike.issuperset(operands):
            args, kwargs = replaced((call.args, call.kwargs), same)
            key = key_of(NumpyCall(call.fun, args, kwargs, None))
            same[call] = known.setdefault(key, call)
            alike.add(call)
    counts, made = Counter(same.values()), dict[NumpyCall, NumpyCall]()
    calls, first, start, may_end = list[NumpyCall](), {*program.inputs}, 0, False
    for call, operands in zip(program.calls, parts, strict=True):
        count = counts[same.get(call, call)]
        if count >= LEAST_TURNS and same[call] is not call:
            made[call] = made.get(same[call], same[call])
            continue
        new, may_raise_here = call, may_raise(call)
        if not made.keys().isdisjoint(operands):
            args, kwargs = replaced((call.args, call.kwargs), made)
            new = made[call] = NumpyCall(call.fun, args, kwargs, call.value, call.place)
        is_first = first.issuperset([same.get(x, x) for x in operands]) and not may_raise_here
        if count >= LEAST_TURNS and is_first and (call.fun in VIEWS or not may_end):
            first.add(call)
            calls.insert(start, new)
            start += 1
            continue
        calls.append(new)
        may_end = may_end or call.fun in STATEMENTS or may_raise_here
        if call.fun is cut:
            start = len(calls)
    return program._replace(calls=calls, outputs=replaced(program.outputs, made))


def operands_of(call: NumpyCall) -> list[NumpyCall]:
    if not call.kwargs and all([type(arg) is NumpyCall for arg in call.args]):
        return list(call.args)
    return [*calls_in((call.args, call.kwargs))]


class Tokens:
    """Numbers of calls, kinds and constants, the same in all rounds. A reference is the place of a
    call, or the negative number of an input or constant, which is among the ``things``."""

    def __init__(self, inputs: Sequence[NumpyCall]):
        self.things: list[Any] = list(inputs)
        self.places = {call: -1 - number for number, call in enumerate(inputs)}
        self.loops: dict[Any, TurnLoop] = {}
        self._numbers: dict[Any, int] = {}  # of kinds and tokens
        self._constants: dict[Any, tuple[int, int]] = {}  # references and kinds
        self._kinds: dict[NumpyCall, int] = {call: self._kind(call.value) for call in inputs}
        self._held: list[Any] = []  # things that are named by their identity

    def number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _kind(self, value: Any) -> int:
        return self.number(kind_in_memory(value))

    def of(self, call: NumpyCall, references: list[int]) -> int:
        """A call's token; appends what it refers to."""
        fun, args = call.fun, call.args
        is_method = type(fun) is BuiltinMethodType  # such as np.add.reduce, made anew each time
        key: list[Any] = [fun if is_method else id(fun)]
        if is_indexed(call):
            self._add(args[0], key, references)
            self._add_constant(args[1], key, references)
            args = args[2:]
        takes_integers = fun in OF_NUMBERS or isinstance(fun, np.ufunc)
        for arg in args:
            if takes_integers and type(arg) is int:
                self._add_constant(arg, key, references)
            else:
                self._add(arg, key, references)
        for name, option in call.kwargs.items():
            key.append(name)
            self._add(option, key, references)
        kind = self._kinds.get(call)
        if kind is None:
            is_loop = type(fun) is TurnLoop
            kind = self._kinds[call] = self.number(id(fun)) if is_loop else self._kind(call.value)
        return self.number((*key, kind, call.place))

    def _add(self, tree: Any, key: list[Any], references: list[int]) -> None:
        kind = type(tree)
        if kind is NumpyCall:
            references.append(self.places[tree])
            key.append(self._kinds[tree])
        elif kind is list or kind is tuple:
            key += (kind, len(tree))
            for part in tree:
                self._add(part, key, references)
        elif kind is dict:
            key += (kind, *tree)
            for part in tree.values():
                self._add(part, key, references)
        elif isinstance(tree, VARYING):
            self._add_constant(tree, key, references)
        else:
            key += (CONSTANT_PART, self._key(tree))

    def _add_constant(self, constant: Any, key: list[Any], references: list[int]) -> None:
        known = self._constants.get(name := self._key(constant))
        if known is None:
            self.things.append(constant)
            known = self._constants[name] = -len(self.things), self._kind(constant)
        references.append(known[0])
        key.append(known[1])

    def _key(self, constant: Any) -> Any:
        kind = type(constant)
        if kind in (int, bool, str, type(None), type(...)):
            return kind, constant
        if kind in (float, complex) and constant == constant:
            return kind, repr(constant)
        if kind is slice:
            return kind, *map(self._key, (constant.start, constant.stop, constant.step))
        if kind is tuple or kind is list:
            return kind, *map(self._key, constant)
        if isinstance(constant, np.generic) and constant.dtype.kind in "biufc":
            return kind, constant.tobytes()
        if kind is np.ndarray and constant.nbytes <= SMALL and constant.dtype.kind in "biufc":
            return kind_in_memory(constant), constant.tobytes()
        self._held.append(constant)
        return id(constant)


def is_indexed(call: NumpyCall) -> bool:
    """Whether the second argument is an index without data, which may differ from turn to turn."""
    if call.fun not in INDEXED or loop_of(call) is not None:
        return False
    return next(calls_in(call.args[1]), None) is None


def kind_in_memory(value: Any) -> Any:
    """A key of values that a call may have in turns of one loop; of an index, its types."""
    if isinstance(value, np.ndarray):
        return type(value), value.shape, value.dtype, value.strides
    if isinstance(value, list | tuple):
        return type(value), *map(kind_in_memory, value)
    return type(value), getattr(value, "dtype", None)


@dataclass
class Span:
    """Calls from ``start`` on, in turns of ``period``. ``references`` has a row for each turn;
    ``modes`` and ``gaps`` tell for each column how it goes from turn to turn, and from which call
    of a turn. ``lasts`` and ``kept``: numbers of calls of a turn whose last value, or values in all
    turns, are used outside."""

    start: int
    period: int
    references: np.ndarray
    modes: np.ndarray
    gaps: np.ndarray
    lasts: Sequence[int] = ()
    kept: Sequence[int] = ()
    results: Any = None  # calls that take them, by number

    @property
    def turns(self) -> int:
        return len(self.references)

    @property
    def stop(self) -> int:
        return self.start + self.period * self.turns


class Round:
    """One look at a list: places, tokens and references of its calls, as numbers."""

    def __init__(self, program: CallList, tokens: Tokens):
        self._program, self._tokens = program, tokens
        self._calls = calls = program.calls
        tokens.places = {call: tokens.places[call] for call in program.inputs}
        references: list[int] = []
        numbers, offsets = [], [0]
        for place, call in enumerate(calls):
            numbers.append(tokens.of(call, references))
            tokens.places[call] = place
            offsets.append(len(references))
        self._numbers, self._offsets = np.array(numbers), np.array(offsets)
        self._references = np.array(references, np.int64)
        self._outputs = [tokens.places[call] for call in calls_in(program.outputs)]
        made = np.r_[self._references, np.array(self._outputs, np.int64)]
        order, counts = np.argsort(made, kind="stable"), np.diff(self._offsets)
        users = np.r_[
            np.repeat(np.arange(len(calls)), counts), np.full(len(self._outputs), len(calls))
        ]
        self._made_places, self._users = made[order], users[order]
        self._are_loops = np.array([type(call.fun) is TurnLoop for call in calls])
        self._lines = np.cumsum([0, *[len([*all_calls([call])]) for call in calls]])
        self._made: dict[NumpyCall, Any] = {}

    # -------------------------------------------------------------------------------- finding

    def spans(self) -> list[Span]:
        """Repeated calls that do not overlap, short periods first."""
        numbers, spans = self._numbers.copy(), list[Span]()
        is_simple = np.array([call.fun is operator.getitem for call in self._calls])
        for period in periods_of(numbers):
            runs = runs_of(numbers, period)
            while runs:
                start, stop = runs.pop()
                free = np.flatnonzero(numbers[start:stop] >= 0)  # runs overlap at their ends
                if not len(free):
                    continue
                start, stop = start + int(free[0]), start + int(free[-1]) + 1
                if is_simple[start : start + period].all():
                    continue
                span = self._span_in(start, stop, period)
                if span is not None:
                    spans.append(span)
                    numbers[span.start : span.stop] = -1 - np.arange(span.start, span.stop)
                    runs += [(start, span.start), (span.stop, stop)]
        spans.sort(key=lambda span: span.start)
        return [part for span in spans for part in self._with_uses(span)]

    def _span_in(self, start: int, stop: int, period: int) -> Span | None:
        if not self._is_worth(start, (stop - start) // period, period):
            return None
        for first in self._phases(start, stop, period):
            span = self._span(first, (stop - first) // period, period)
            if span is not None:
                return span
        return None

    def _phases(self, start: int, stop: int, period: int) -> Iterable[int]:
        """Places to begin a turn, first those that the fewest values cross to the next turn."""
        middle = start + (stop - start) // period // 2 * period
        low, high = self._offsets[[middle, middle + period]]
        made = self._references[low:high] - middle + period
        users = np.repeat(np.arange(period), np.diff(self._offsets[middle : middle + period + 1]))
        last = np.zeros(2 * period, int)  # users of what this turn and the one before it made
        np.maximum.at(last, made[made >= 0], users[made >= 0] + period)
        crossing = np.zeros(period, int)
        for place in np.flatnonzero(last).tolist():
            stop_of_value = min(int(last[place]), place + period)
            weight = period if self._are_loops[middle - period + place] else 1
            crossing[np.arange(place + 1, stop_of_value + 1) % period] += weight
        order = np.argsort(crossing, kind="stable")[:MOST_PHASES]
        return [start + phase for phase in order.tolist()]

    def _span(self, start: int, turns: int, period: int) -> Span | None:
        """The longest loop among so many turns."""
        while self._is_worth(start, turns, period):
            low, high = self._offsets[[start, start + turns * period]]
            references = self._references[low:high].reshape(turns, -1)
            first = start + period * np.arange(turns)[:, None]
            modes, gaps, is_usual = modes_of(references, first, period)
            begin, end = longest_run(is_usual)
            if end - begin == turns:
                crossing = references[:, modes != WITHIN]
                if self._are_loops[crossing[crossing >= 0]].any():  # whose results are named
                    return None
                return Span(start, period, references, modes, gaps)
            start, turns = start + begin * period, end - begin
        return None

    def _is_worth(self, start: int, turns: int, period: int) -> bool:
        lines = self._lines[start + turns * period] - self._lines[start] if turns > 0 else 0
        return turns >= LEAST_TURNS and lines >= LEAST_CALLS

    def _with_uses(self, span: Span) -> Iterator[Span]:
        """The span with what is used of it outside; in parts that end where a large value of few
        turns is used, so that not all others are kept."""
        low, high = np.searchsorted(self._made_places, [span.start, span.stop])
        users = self._users[low:high]
        is_outside = (users < span.start) | (users >= span.stop)
        used = np.unique(self._made_places[low:high][is_outside]) - span.start
        if self._are_loops[span.start + used].any():
            return
        turns, numbers = used // span.period, used % span.period
        is_early = turns < span.turns - 1
        counts = np.bincount(numbers[is_early], minlength=span.period)
        is_rare = (counts > 0) & (2 * counts < span.turns)
        for number in np.flatnonzero(is_rare).tolist():
            value = self._calls[span.start + number].value
            is_rare[number] = nbytes_of(value) * span.turns > KEPT
        lonely = turns[is_early & is_rare[numbers]]
        if len(lonely):
            end = span.start + (int(lonely.min()) + 1) * span.period
            for start, stop in ((span.start, end), (end, span.stop)):
                part = self._span(start, (stop - start) // span.period, span.period)
                if part is not None:
                    yield from self._with_uses(part)
            return
        span.kept = np.flatnonzero(counts).tolist()
        span.lasts = sorted({*numbers[~is_early].tolist()} - {*span.kept})
        yield span

    # ------------------------------------------------------------------------------- building

    def with_loops(self, spans: Sequence[Span]) -> CallList:
        """The list with these spans as loops."""
        self._all, self._new = spans, list[NumpyCall]()
        self._inside = np.full(len(self._calls) + len(self._tokens.things), -1)
        for number, span in enumerate(spans):
            self._inside[span.start : span.stop] = number
        place = 0
        for span in spans:
            self._copy(place, span.start)
            self._add_loop(span)
            place = span.stop
        self._copy(place, len(self._calls))
        outputs = mapped(self._program.outputs, self._new_of)
        return self._program._replace(calls=self._new, outputs=outputs)

    def _copy(self, start: int, stop: int) -> None:
        """Takes over calls, with new arguments where these are in loops."""
        for call in self._calls[start:stop]:
            args, kwargs = mapped((call.args, call.kwargs), self._new_of)
            self._made[call] = NumpyCall(call.fun, args, kwargs, call.value, call.place)
            self._new.append(self._made[call])

    def _new_of(self, call: NumpyCall) -> Any:
        return self._thing(self._tokens.places[call])

    def _old(self, reference: int) -> Any:
        """A call, an input or a constant of the old list."""
        return self._calls[reference] if reference >= 0 else self._tokens.things[-1 - reference]

    def _thing(self, reference: int) -> Any:
        """The new list's thing in place of a call, an input or a constant."""
        old = self._old(reference)
        if reference < 0 or old in self._made:
            return old if reference < 0 else self._made[old]
        span = self._all[self._inside[reference]]
        turn, number = divmod(reference - span.start, span.period)
        result = span.results[number]
        return self._entry(result, turn, old.value) if number in span.kept else result

    def _entry(self, source: NumpyCall, index: Any, value: Any) -> NumpyCall:
        self._new.append(NumpyCall(operator.getitem, (source, index), {}, value, source.place))
        return self._new[-1]

    def _sequence(self, references: np.ndarray) -> Any:
        """Values that differ, as a sequence; many are consecutive results of a loop."""
        spans, turns = self._inside[references], np.zeros(len(references), int)
        places = -1 - np.arange(len(references))
        for number in np.unique(spans[spans >= 0]).tolist():
            span, is_in = self._all[number], spans == number
            turns[is_in], places[is_in] = np.divmod(references[is_in] - span.start, span.period)
        parts, start = list[Any](), 0
        while start < len(references):
            stop, step = start + 1, 0
            while stop < len(references) and (spans[stop], places[stop]) == (
                spans[start],
                places[start],
            ):
                gap = int(turns[stop] - turns[stop - 1])
                if not gap or (step and gap != step):
                    break
                stop, step = stop + 1, gap
            if step:
                kept = self._all[spans[start]].results[int(places[start])]
                parts.append(self._part(kept, int(turns[start]), step, stop - start))
            else:
                parts.append((self._thing(int(references[start])),))
            start = stop
        if not any([isinstance(part, NumpyCall) for part in parts]):
            return tuple([thing for part in parts for thing in part])
        if len(parts) == 1:
            return parts[0]
        values = [part.value if isinstance(part, NumpyCall) else value_of(part) for part in parts]
        self._new.append(NumpyCall(chained, parts, {}, chained(*values)))
        return self._new[-1]

    def _part(self, kept: NumpyCall, start: int, step: int, count: int) -> NumpyCall:
        stop = start + step * count
        part = slice(start, None if stop < 0 else stop, step)
        is_whole = step == 1 and count == len(kept.value)
        return kept if is_whole else self._entry(kept, part, kept.value[part])

    def _add_loop(self, span: Span) -> None:
        """Makes the call of a loop, and calls that take its results apart."""
        calls = self._calls[span.start : span.start + span.period]
        keys: dict[int, dict[tuple, int]] = {BEFORE: {}, ROWS: {}, FIXED: {}}  # of parameters
        links: list[tuple[int, int]] = []
        columns = zip(
            span.references.T.tolist(), span.modes.tolist(), span.gaps.tolist(), strict=True
        )
        for column, mode, gap in columns:
            if mode == BEFORE:
                depth, place = -(gap // span.period), gap % span.period
                for n in range(depth):  # from turn to turn
                    key = place, *column[depth - 1 - n : depth]
                    number = keys[mode].setdefault(key, len(keys[mode]))
            elif mode == WITHIN:
                number = gap
            elif mode == FIXED and not self._is_call(column[0]):
                mode, number = CONSTANT, column[0]
            else:
                key = tuple(column) if mode == ROWS else (column[0],)
                number = keys[mode].setdefault(key, len(keys[mode]))
            links.append((mode, number))
        carried, rows, fixed = keys.values()
        nexts = [carried[key[0], *key[2:]] if len(key) > 2 else -1 - key[0] for key in carried]
        are_constant = [not any(map(self._is_call, row)) for row in rows]
        tokens = self._numbers[span.start : span.start + span.period].tobytes()
        name = span.turns, tokens, *links, *nexts, *are_constant, *span.lasts, None, *span.kept
        first, stay = [key[1] for key in carried], [key[0] for key in fixed]
        if name not in self._tokens.loops:
            of_rows = zip([row[0] for row in rows], are_constant, strict=True)
            parameters = {
                BEFORE: list(map(self._parameter, first)),
                ROWS: list(starmap(self._parameter, of_rows)),
                FIXED: list(map(self._parameter, stay)),
            }
            self._tokens.loops[name] = self._loop(span, calls, links, nexts, parameters)
        sequences = [self._sequence(np.array(row)) for row in rows]
        args = list(map(self._thing, first)), sequences, list(map(self._thing, stay))
        kept = [[calls[n].value] * span.turns for n in span.kept]
        value = *[calls[n].value for n in span.lasts], *kept
        call = NumpyCall(self._tokens.loops[name], args, {}, value, calls[0].place)
        self._new.append(call)
        outputs = enumerate([*span.lasts, *span.kept])
        span.results = {n: self._entry(call, k, value[k]) for k, n in outputs}
        for reference in self._outputs:  # which no later call may make
            if span.start <= reference < span.stop:
                self._made[self._calls[reference]] = self._thing(reference)

    def _is_call(self, reference: int) -> bool:
        return isinstance(self._old(reference), NumpyCall)

    def _parameter(self, reference: int, is_constant: bool = False) -> NumpyCall:
        value = value_of(self._old(reference))
        return NumpyCall(constant_of_turn if is_constant else None, (), {}, value)

    def _loop(
        self,
        span: Span,
        calls: Sequence[NumpyCall],
        links: Sequence[tuple[int, int]],
        nexts: Sequence[int],
        parameters: dict[int, list[NumpyCall]],
    ) -> TurnLoop:
        """The loop of one turn's calls."""
        body: list[NumpyCall] = []
        remaining = iter(links)

        def linked() -> Any:
            mode, number = next(remaining)
            return self._old(number) if mode == CONSTANT else parameters[mode][number]

        parameters = {**parameters, WITHIN: body}
        for call in calls:
            args, kwargs = with_references(call, linked)
            body.append(NumpyCall(call.fun, args, kwargs, call.value, call.place))
        carried, rows, fixed = parameters[BEFORE], parameters[ROWS], parameters[FIXED]
        ends = [body[-1 - n] if n < 0 else carried[n] for n in nexts]
        pairs = list(zip(carried, ends, strict=True))
        outputs = [body[n] for n in [*span.lasts, *span.kept]]
        return TurnLoop(span.turns, body, pairs, rows, fixed, outputs, len(span.lasts))


def with_references(call: NumpyCall, linked: Callable[[], Any]) -> tuple[tuple, dict]:
    """A call's arguments with other references, in the order of ``Tokens.of``."""
    fun, args = call.fun, call.args
    takes_integers = fun in OF_NUMBERS or isinstance(fun, np.ufunc)
    has_index = is_indexed(call)

    def new(tree: Any) -> Any:
        kind = type(tree)
        if kind is NumpyCall or isinstance(tree, VARYING):
            return linked()
        if kind is list or kind is tuple:
            return kind([new(part) for part in tree])
        return {name: new(part) for name, part in tree.items()} if kind is dict else tree

    parts = [
        linked() if (takes_integers and type(arg) is int) or (has_index and n == 1) else new(arg)
        for n, arg in enumerate(args)
    ]
    return tuple(parts), new(call.kwargs)


# -------------------------------------------------------------------------------------- periods


def periods_of(numbers: np.ndarray) -> list[int]:
    """Likely periods, the short ones first: distances between equal runs of some calls."""
    grams = np.zeros(max(len(numbers) - GRAM + 1, 0), np.int64)
    for n in range(GRAM):
        grams = grams * 1_000_003 + numbers[n : len(grams) + n]
    order = np.argsort(grams, kind="stable")
    gaps = np.diff(order)[grams[order][1:] == grams[order][:-1]]
    periods, counts = np.unique(gaps, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST_PERIODS]
    return sorted(periods[most].tolist())


def runs_of(numbers: np.ndarray, period: int) -> list[tuple[int, int]]:
    """Starts and ends of long runs of calls that repeat with this period."""
    is_same = np.r_[False, numbers[:-period] == numbers[period:], False]
    runs = np.flatnonzero(is_same[1:] != is_same[:-1]).reshape(-1, 2)
    is_long = runs[:, 1] - runs[:, 0] >= (LEAST_TURNS - 1) * period
    return [(start, stop + period) for start, stop in runs[is_long].tolist()]


def modes_of(
    references: np.ndarray, first: np.ndarray, period: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How each column goes from turn to turn, from how far, and which turns go like most."""
    turns, middle, gaps = len(references), len(references) // 2, references - first
    fixed, usual = np.sort(references, 0)[middle], np.sort(gaps, 0)[middle]
    is_outside, is_same = references < first[0], references == fixed
    is_fixed = 2 * is_same.sum(0) > turns
    is_even = (2 * (gaps == usual).sum(0) > turns) & (usual >= -MOST_DEPTH * period)
    modes = np.where(is_fixed, FIXED, np.where(is_even, np.where(usual < 0, BEFORE, WITHIN), ROWS))
    modes[is_outside.all(0) & ~is_same.all(0)] = ROWS
    is_first = np.arange(turns)[:, None] < -(usual // period)
    is_usual = np.select(
        [modes == FIXED, modes == WITHIN, modes == BEFORE],
        [
            is_same & (fixed < first),
            gaps == usual,
            np.where(is_first, is_outside, gaps == usual),
        ],
        is_outside,
    )
    return modes, usual, is_usual.all(1)


def longest_run(are: np.ndarray) -> tuple[int, int]:
    """The longest run of true entries."""
    edges = np.flatnonzero(np.diff(np.r_[False, are, False]))
    runs = [(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]
    return max(runs, key=lambda run: run[1] - run[0], default=(0, 0))


def nbytes_of(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(nbytes_of, value))
    return getattr(value, "nbytes", 0)
