"""The sweep over differentiated functions: how a table of calls is made and checked.

A ``Function`` is one primitive with a rule: the arrays that it is called with, the values of each
of its parameters that are right, and those that must be refused. ``calls_of`` makes the calls, one
for every value of every parameter, by keyword and by position; the checks compare both modes, and
derivatives of derivatives, with differences.
"""

import dataclasses
import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.tracer import Box, isbox

from daskgrad.autodiff.tape import Dependence, linearize, trace
from daskgrad.autodiff.values.cotangents import is_differentiable, project

MOST_ENTRIES = 12
DOMAIN_ERRORS = (TypeError, ValueError, IndexError, NotImplementedError, np.linalg.LinAlgError)


class Held:
    """A float array that a call holds constant."""

    def __init__(self, value: Any):
        self.value = value


class Wrt(NamedTuple):
    """Arguments of a call that must be refused for those of them that are differentiated."""

    args: tuple
    kwargs: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A primitive: its arguments and parameters, each with values, refusals or a reason.

    ``inputs`` are positional arguments; floating-point arrays among them are differentiated.
    ``also`` are further calls with several keywords at once. ``adapt`` makes of the primitive what
    is called, for example with a symmetric matrix; ``names`` are those of the inputs, where
    ``adapt`` takes them otherwise. ``reasons`` say of a parameter why there is nothing to check,
    and of "complex" and "single" why there are no such arrays.
    """

    fun: Callable
    inputs: Sequence[tuple]
    parameters: Mapping[str, Sequence[Any]]
    refused: Mapping[str, Any]
    also: Sequence[dict]
    reasons: Mapping[str, str]
    adapt: Callable[[Callable], Callable]
    name: str
    names: Sequence[str]

    @property
    def raw(self) -> Callable:
        return getattr(self.fun, "fun", self.fun)

    @property
    def raw_name(self) -> str:
        return self.fun.__name__

    @property
    def positions(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.raw).parameters)

    @property
    def arguments(self) -> dict[str, Any]:
        """All that may be given, each with its kind: those of NumPy's function of that name, too,
        and the parameters of a distribution, whose methods take ``(x, *args, **kwds)``."""
        kinds = {name: each.kind for name, each in self.positions.items()}
        distribution = getattr(self.raw, "__self__", None)
        if hasattr(distribution, "shapes"):
            shapes = (distribution.shapes or "").replace(",", " ").split()
            scale = ["scale"] * hasattr(distribution, "pdf")
            return dict.fromkeys([next(iter(kinds)), *shapes, "loc", *scale], ANY)
        if self.twin is not self.fun:
            numpys = inspect.signature(self.twin).parameters
            kinds = {name: each.kind for name, each in numpys.items()} | kinds
        return kinds

    @property
    def twin(self) -> Callable:
        """NumPy's function of this name, where autograd composes its own of primitives."""
        return self.fun if hasattr(self.fun, "fun") else getattr(np, self.name, self.fun)

    def named(self, args: Sequence[Any]) -> list[tuple[str, Any]]:
        """Positional arguments with their names."""
        names: list[str] = []
        for name, kind in self.arguments.items():
            names.extend([name] * (len(args) if kind is inspect.Parameter.VAR_POSITIONAL else 1))
        return list(zip(self.names or names, args, strict=False))


ANY = inspect.Parameter.POSITIONAL_OR_KEYWORD
TABLE: list[Function] = []


def function(
    fun: Callable,
    inputs: Sequence[tuple],
    *,
    refused: Mapping[str, Any] = {},
    also: Sequence[dict] = (),
    reasons: Mapping[str, str] = {},
    adapt: Callable[[Callable], Callable] = lambda fun: fun,
    name: str = "",
    names: Sequence[str] = (),
    **parameters: Sequence[Any],
) -> None:
    """Enters a primitive, or more calls of it, into the table."""
    called = (adapt, name or fun.__name__, names)
    TABLE.append(Function(fun, inputs, parameters, refused, also, reasons, *called))


class Call:
    """One call: a function of the arrays that are differentiated."""

    def __init__(
        self, name: str, fun: Callable, args: Sequence[Any], kwargs: dict, arrays: int = 99
    ):
        self.name = name
        self.kwargs = kwargs
        self.by_position = len(args) > arrays
        self._fun = fun
        self._args = list(args)
        self._places = [n for n, arg in enumerate(args[:arrays]) if is_array(arg)]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The differentiable outputs."""
        args = [arg.value if isinstance(arg, Held) else arg for arg in self._args]
        for place, array in zip(self._places, arrays, strict=True):
            args[place] = array
        value = self._fun(*args, **self.kwargs)
        parts = [value]
        if isinstance(anp_value(value), list | tuple):
            parts = [value[n] for n in range(len(anp_value(value)))]
        return [part for part in parts if is_differentiable(anp_value(part))]

    def arrays(self, dtype: str) -> list[Any]:
        return [converted(self._args[place], dtype, place) for place in self._places]


def is_array(arg: Any) -> bool:
    return isinstance(arg, np.ndarray | np.generic) and is_differentiable(arg)


def anp_value(value: Any) -> Any:
    while isbox(value):
        value = Box.__dict__["_value"].__get__(value)  # that of a box that is recorded, too
    return value


def converted(array: Any, dtype: str, place: int) -> Any:
    """An array in a precision; ``"D"`` makes complex numbers of real ones."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return array.astype(dtype.upper())[()]
    if dtype == "D":
        turned = np.roll(array[..., ::-1] if array.ndim else array, 1)
        array = array + (0.3 + 0.1 * place) * 1j * turned
    return array.astype(dtype)[()]


def widened(arrays: Sequence[Any]) -> list[Any]:
    return [np.asarray(a).astype("D" if np.iscomplexobj(a) else "d")[()] for a in arrays]


# ----------------------------------------------------------------------------------- the calls


def calls_of(entry: Function) -> Iterator[Call]:
    """A call of each input with no parameter, with each value of one, and by position."""
    fun = entry.adapt(entry.fun)
    for number, args in enumerate(entry.inputs):
        for kwargs in combinations(entry):
            label = ", ".join([f"#{number}", *[f"{k}={short(v)}" for k, v in kwargs.items()]])
            if works(fun, args, kwargs):
                yield Call(f"{entry.name}({label})", fun, args, kwargs)
                listed = by_position(entry, args, kwargs)
                if listed is not None and works(fun, listed, {}):
                    yield Call(f"{entry.name}({label}, by position)", fun, listed, {}, len(args))


def some_calls_of(entry: Function) -> Iterator[Call]:
    """A call of each input, and of each value of a parameter with the first input that takes it."""
    values = set()
    for call in calls_of(entry):
        value = call.name.partition(", ")[2]
        if len(call.kwargs) < 2 and not call.by_position and not (value and value in values):
            values.add(value)
            yield call


def combinations(entry: Function) -> Iterator[dict]:
    yield {}
    for name, values in entry.parameters.items():
        for value in values:
            yield {name: value}
            if name != "axis":
                yield from (
                    {"axis": axis, name: value} for axis in entry.parameters.get("axis", ())
                )
    yield from entry.also


def short(value: Any) -> str:
    return f"array{np.shape(value)}" if isinstance(value, np.ndarray) else str(value)


def works(fun: Callable, args: Sequence[Any], kwargs: dict) -> bool:
    """Whether NumPy itself takes the call."""
    plain = [copied(arg.value if isinstance(arg, Held) else arg) for arg in args]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fun(*plain, **kwargs)
    except DOMAIN_ERRORS:
        return False
    return True


def copied(arg: Any) -> Any:
    """A copy of an array that a function may overwrite."""
    return arg.copy() if isinstance(arg, np.ndarray) and 0 not in arg.strides else arg


def by_position(entry: Function, args: Sequence[Any], kwargs: dict) -> list | None:
    """The arguments with the keywords among them, where the signature has a place for each."""
    if not kwargs:
        return None
    named = list(entry.positions.values())
    if any(p.kind is p.VAR_POSITIONAL for p in named):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in named if p.kind in kinds]
    if not set(kwargs).issubset(names[len(args) :]):
        return None
    last = max(map(names.index, kwargs))
    defaults = {p.name: p.default for p in named}
    return [*args, *[kwargs.get(name, defaults[name]) for name in names[len(args) : last + 1]]]


# ---------------------------------------------------------------------------------- the checks


def drawn(like: Any, random: np.random.Generator) -> Any:
    like = np.asarray(like)
    entries = random.standard_normal(like.shape)
    if like.dtype.kind == "c":
        entries = entries + 1j * random.standard_normal(like.shape)
    return entries.astype(like.dtype)[()]


def inner(first: Sequence[Any], second: Sequence[Any]) -> float:
    """autograd's inner product, in which cotangents are not conjugated."""
    pairs = zip(first, second, strict=True)
    return sum([float(np.sum(np.real(np.asarray(a) * np.asarray(b)))) for a, b in pairs])


def norm(leaves: Sequence[Any]) -> float:
    return float(np.sqrt(sum([np.sum(np.abs(leaf) ** 2) for leaf in leaves])))


def moved(arrays: Sequence[Any], step: float, tangents: Sequence[Any]) -> list[Any]:
    return [a + step * t for a, t in zip(arrays, tangents, strict=True)]


def differences(
    fun: Callable, arrays: Sequence[Any], tangents: Sequence[Any], step: float = 1e-3
) -> list[Any]:
    """The derivative along the tangents: central differences, extrapolated twice."""

    def central(h: float) -> list[Any]:
        ahead, behind = (fun(*moved(arrays, s * h, tangents)) for s in (1.0, -1.0))
        return [(np.asarray(a) - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)]

    rows = [central(step / 2**n) for n in range(3)]
    for order in (4.0, 16.0):
        rows = [
            [(order * b - a) / (order - 1) for a, b in zip(*pair, strict=True)]
            for pair in itertools.pairwise(rows)
        ]
    return rows[0]


def require_alike(found: Sequence[Any], like: Sequence[Any], what: str) -> None:
    for one, other in zip(found, like, strict=True):
        other = np.asarray(other)
        assert np.shape(one) == other.shape, f"{what}: shape {np.shape(one)} of {other.shape}"
        assert np.asarray(one).dtype == other.dtype, f"{what}: {np.asarray(one).dtype}"


def require_near(found: Sequence[Any], expected: Sequence[Any], tolerance: float, what: str):
    gap = norm([np.asarray(a) - b for a, b in zip(found, expected, strict=True)])
    assert gap <= tolerance * (1.0 + norm(expected)), (
        f"{what}: off by {gap:.2e} of {norm(expected):.2e}: {found}, not {expected}"
    )


def pulled(call: Callable, arrays: Sequence[Any], gs: Sequence[Any]) -> list[Any]:
    """The cotangents of the arrays, as daskgrad hands them out."""
    _, tape = trace(call, arrays)
    found = [0.0 * a if c is None else c for a, c in zip(arrays, tape.pull(gs), strict=True)]
    for cotangent, array in zip(found, arrays, strict=True):
        assert np.size(cotangent) == np.size(array), f"cotangent of shape {np.shape(cotangent)}"
    return [project(c, a) for c, a in zip(found, arrays, strict=True)]


def tolerance_of(arrays: Sequence[Any]) -> float:
    """What differences resolve of numbers in the least precise dtype."""
    return (
        2e-3
        if any(np.asarray(a).dtype.itemsize < 8 * (1 + np.iscomplexobj(a)) for a in arrays)
        else 1e-9
    )


def check(call: Call, dtype: str, random: np.random.Generator) -> None:
    """Both modes of one call against differences, and against each other."""
    arrays = call.arrays(dtype)
    value = call(*arrays)
    gs = [drawn(part, random) for part in value]
    tangents = [drawn(array, random) for array in arrays]
    outputs, push = linearize(call, arrays)
    require_near(outputs, value, 0.0, "value")
    pushed = push(tangents)
    require_alike(pushed, value, "tangent")
    cotangents = pulled(call, arrays, gs)
    require_alike(cotangents, arrays, "cotangent")
    expected = differences(call, widened(arrays), widened(tangents))
    tolerance = tolerance_of([*arrays, *value])
    require_near(pushed, expected, tolerance, "tangent")
    for number, tangent in enumerate(tangents):
        alone = [None] * len(arrays)
        alone[number] = tangent
        left, right = inner(gs, push(alone)), inner([cotangents[number]], [tangent])
        scale = 1.0 + norm(gs) * norm(pushed)
        assert abs(left - right) <= 1e-3 * tolerance * scale, (
            f"⟨g, Jv⟩ = {left:.12g}, ⟨Jᵀg, v⟩ = {right:.12g} for argument {number}"
        )


def require_dependence(call: Call, arrays: Sequence[Any], random: np.random.Generator) -> None:
    """No tangent of some entries of the arrays reaches others than those that depend on them."""
    outputs, push = linearize(call, arrays)
    ends = list(itertools.accumulate([np.size(array) for array in arrays]))
    numbers = [np.arange(end - np.size(a), end) for a, end in zip(arrays, ends, strict=True)]
    columns = []
    for array, own in zip(arrays, numbers, strict=True):
        sets = np.empty(own.size, object)
        sets[:] = [frozenset([number]) for number in own.tolist()]
        columns.append(sets.reshape(np.shape(array))[()])
    depends = Dependence(push, columns)
    for number in random.permutation(max(ends, default=0))[:MOST_ENTRIES].tolist():
        tangents = [
            np.where(own == number, 1.0, 0.0).reshape(np.shape(array))[()]
            for array, own in zip(arrays, numbers, strict=True)
        ]
        pushed = zip(outputs, push(tangents), depends.outputs, strict=True)
        for output, tangent, sets in pushed:
            if tangent is None:
                continue
            each = list(sets.flat) if isinstance(sets, np.ndarray) else [sets or frozenset()]
            are_there = [number in one for one in each] * (np.size(output) // max(len(each), 1))
            wrong = (np.ravel(tangent) != 0) & ~np.array(are_there, bool)
            assert not np.any(wrong), f"{call.name}: entry {number} reaches {np.flatnonzero(wrong)}"


def check_second(call: Call, random: np.random.Generator) -> None:
    """Reverse over forward and forward over reverse, of the call after a curved map."""
    arrays = call.arrays("d")

    def curved(*boxes: Any) -> list[Any]:
        return call(*[b + 0.5 * (b * b - a * a) for a, b in zip(arrays, boxes, strict=True)])

    gs = [drawn(part, random) for part in call(*arrays)]
    tangents = [drawn(array, random) for array in arrays]

    def gradient(*xs: Any) -> list[Any]:
        _, tape = trace(curved, xs)
        found = tape.pull(gs)
        return [in_kind_of(x, c) for x, c in zip(xs, found, strict=True)]

    def slope(*xs: Any) -> list[Any]:
        _, push = linearize(curved, xs)
        pairs = zip(push(tangents), gs, strict=True)
        return [sum([anp.sum(anp.real(t * g)) for t, g in pairs])]

    expected = differences(gradient, arrays, tangents)
    over_forward = pulled(slope, arrays, [1.0])
    require_near(over_forward, expected, 1e-8, "reverse over forward")
    _, push = linearize(gradient, arrays)
    require_near(push(tangents), expected, 1e-8, "forward over reverse")


def in_kind_of(x: Any, cotangent: Any) -> Any:
    if cotangent is None:
        return 0.0 * x
    return cotangent if anp.iscomplexobj(x) else anp.real(cotangent)


def refusal_calls(entry: Function) -> Iterator[tuple[str, Callable]]:
    """The calls that must be refused, with the parameter that each error has to name."""
    for parameter, value in entry.refused.items():
        if isinstance(value, Wrt):
            assert works(entry.fun, value.args, dict(value.kwargs))
            name = f"{entry.name}(by {parameter})"
            yield parameter, Call(name, entry.fun, value.args, dict(value.kwargs))
            continue
        for args in entry.inputs:
            given = value(*args) if inspect.isfunction(value) else value
            fun, twin = (
                entry.adapt(functools.partial(each, **{parameter: given}))
                for each in (entry.fun, entry.twin)
            )
            call = Call(f"{entry.name}({parameter}=)", fun, args, {})
            if call.arrays("d") and works(twin, args, {}):
                yield parameter, call


def by_keyword(entry: Function) -> Iterator[Call]:
    """Calls whose last number or array is given by keyword, where it has a name."""
    fun = entry.adapt(entry.fun)
    given = [(args[:-1], *entry.named(args)[-1]) for args in entry.inputs[:2] if len(args) > 1]
    for name, values in entry.parameters.items():
        given += [(entry.inputs[0], name, value) for value in values]
    for args, name, value in given:
        if not is_array(value) and not isinstance(value, float):
            continue

        def call(*given: Any, name: str = name) -> Any:
            return fun(*given[:-1], **{name: given[-1]})

        if entry.arguments.get(name) is ANY and works(call, (*args, value), {}):
            yield Call(f"{entry.name}({name} by keyword)", call, (*args, np.asarray(value)[()]), {})


# ------------------------------------------------------------------- what is tested of an argument


def tested(entry: Function) -> Iterator[tuple[str, str]]:
    """The arguments of a function with what an entry has of each: "derivative", "value" (which
    passes through), "constant" (a number that is not differentiated), "refusal" or "reason"."""
    for args in entry.inputs:
        yield from [(name, kind_of_input(arg)) for name, arg in entry.named(args)]
    for name, values in entry.parameters.items():
        yield from [(name, "value") for _ in values]
    for given in entry.also:
        yield from [(name, "value") for name in given]
    yield from [(name, "refusal") for name, _ in refusal_calls(entry)]
    yield from [(name, "reason") for name in entry.reasons]


def kind_of_input(given: Any) -> str:
    if is_array(given):
        return "derivative"
    return "constant" if isinstance(given, Held | float) else "value"


ENOUGH = {"derivative", "value", "refusal", "reason"}


def gaps(table: Sequence[Function]) -> Iterator[str]:
    """What the table lacks: arguments of which nothing is tested; and what it says in vain."""
    told: dict[Callable, dict[str, set[str]]] = {}
    for entry in table:
        of_function = told.setdefault(entry.fun, {})
        for name, what in tested(entry):
            of_function.setdefault(name, set()).add(what)
    for entry in {entry.fun: entry for entry in table}.values():
        of_function, arguments = told[entry.fun], entry.arguments
        takes_any = inspect.Parameter.VAR_KEYWORD in arguments.values()
        for name in arguments:
            what = of_function.get(name, set())
            if not what & (ENOUGH - {"value"} if "constant" in what else ENOUGH):
                yield f"{entry.name}: nothing is tested of {name!r}"
            if "reason" in what and len(what & ENOUGH) > 1:
                yield f"{entry.name}: {name!r} is tested, and needs no reason"
        for name in of_function.keys() - arguments.keys() - {"complex", "single"}:
            if not takes_any:
                yield f"{entry.name} has no argument {name!r}"
