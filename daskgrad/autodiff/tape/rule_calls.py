"""Functions with their own rules: a call of one is a single node of a trace.

A call on boxes enters the trace as autograd's primitives do, but the function is an object
(``daskgrad.autodiff.models.custom_vjp.Rule``), its arguments and value are pytrees, and the run
that makes the value keeps the residuals for the pullback. The function runs below the trace and
sees no boxes of it, only boxes of outer traces: so derivatives nest as autograd's do.
"""

import functools
import types
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from autograd.builtins import DictBox, SequenceBox
from autograd.extend import defjvp_argnums, defvjp_argnums
from autograd.tracer import find_top_boxed_args, getval, isbox, new_box

from daskgrad.autodiff.rules.declaration import Diverged, is_recorded
from daskgrad.autodiff.tape.boxes import LIBRARIES, TRACERS, live
from daskgrad.autodiff.tape.operands import Copies, Operands
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, describe
from daskgrad.autodiff.values.memory import is_owned, without_memory
from daskgrad.autodiff.values.protection import read_only_leaf
from daskgrad.autodiff.values.trees import (
    codes_in,
    flatten,
    held_by,
    map_leaves,
    substitute,
    unflatten,
)


class RuleCall(NamedTuple):
    """One call of a function, below its trace: ``leaves`` and ``structure`` of the positional
    arguments; the run returned ``value`` and ``residuals``. ``references``: see ``checksums``."""

    function: Any
    leaves: tuple
    structure: Any
    kwargs: dict
    value: Any
    residuals: Any
    references: Sequence[int] = ()

    @property
    def args(self) -> tuple:
        return self.with_leaves(self.leaves)

    def require_unchanged(self) -> None:
        """Raises if functions that run again would see other arrays than when it was called."""
        if checksums(self.function.run_again()) != self.references:
            raise NondeterministicModelError(
                f"an array to which {self.function.name!r} refers has changed since its call, and "
                f"its derivative runs it again; pass the array as an argument, or let each call "
                f"refer to an array of its own: array.copy()"
            )

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """The arguments with different leaves."""
        return unflatten(self.structure, leaves)


def call_rule(function: Any, args: tuple, kwargs: dict) -> Any:
    """Calls a function with its own rules, on boxes or on plain arrays."""
    require_plain_keywords(function, kwargs)
    leaves, structure = flatten_arguments(args)
    boxes, number, node_type, _ = find_top_boxed_args(leaves)
    if not boxes:
        return function.fun(*args, **kwargs)
    is_traced = not is_recorded(boxes[0][1])
    for place, box in boxes if is_traced else ():
        leaves[place] = box._value
    recorded = list(filter(is_recorded, [*leaves, *flatten(kwargs)[0]]))
    is_one_call = not any([isbox(leaf) and not is_recorded(leaf) for leaf in leaves])
    outputs: Any = None
    if recorded and is_one_call and is_traced:
        active = [place for place, _ in boxes]
        outputs = function.run_recorded(unflatten(structure, leaves), kwargs, active)
    if recorded and is_one_call and outputs is None:
        run = RecordedRun(function, structure, kwargs, is_traced)
        call, value = run.record(recorded[0], leaves)
        return enter_call(call, boxes, number, node_type) if is_traced else value
    operands, places = live.get(number) or Copies(), [place for place, _ in boxes]
    leaves = list(operands.taken(function, tuple(leaves), places))
    leaves, kwargs = list(map(protected, leaves)), map_leaves(operands.of, kwargs)
    if function.is_first_order and any(map(isbox, leaves)):
        raise TypeError(
            f"{function.name!r} has no second derivative: finite differences have first "
            f"derivatives only"
        )
    if outputs is None:
        outputs = function.run(unflatten(structure, leaves), kwargs)
    value, residuals = kept_run(*flatten(outputs), leaves, operands)
    references = checksums(function.run_again())
    call = RuleCall(function, tuple(leaves), structure, kwargs, value, residuals, references)
    return enter_call(call, boxes, number, node_type)


def kept_run(
    leaves: list[Any], structure: Any, arguments: Sequence[Any], operands: Operands
) -> tuple[Any, Any]:
    """Value and residuals of a run, which the user's function may fill again at its next call, and
    which a rule that is called more than once cannot change."""
    passed = set(map(id, arguments))
    for place in range(len(leaves)):
        is_array = isinstance(leaves[place], np.ndarray)
        if not (is_array and (is_owned(leaves, place) or id(leaves[place]) in passed)):
            leaves[place] = operands.of(leaves[place])
        leaves[place] = protected(leaves[place])
    return unflatten(structure, leaves)


def checksums(functions: Sequence[Any]) -> list[int]:
    """Numbers that tell whether arrays to which functions of the user's refer have changed."""
    sums: list[int] = []
    seen: set[int] = set()
    things = list(functions)
    while things:
        thing = things.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if type(thing) is np.ndarray:
            sums.append(0 if thing.dtype.hasobject else zlib.crc32(thing.tobytes()))
        elif isinstance(thing, types.FunctionType):
            if thing.__module__ is None or thing.__module__.split(".")[0] not in OF_OTHERS:
                names = [name for code in codes_in(thing.__code__) for name in code.co_names]
                things += [*held_by(thing), *map(thing.__globals__.get, names)]
        elif isinstance(thing, types.MethodType):
            things += [thing.__func__, *getattr(thing.__self__, "__dict__", {}).values()]
        elif isinstance(thing, functools.partial):
            things += [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, list | tuple):
            things += thing
        elif isinstance(thing, dict):
            things += thing.values()
    return sums


OF_OTHERS = (*TRACERS, *LIBRARIES)


def enter_call(call: RuleCall, boxes: Any, number: int, node_type: Any) -> Any:
    """The value of a call; the trace gets a node for it."""

    def enter(answer: Any) -> Any:
        argnums = tuple([place + 1 for place, _ in boxes])
        parents = tuple([box._node for _, box in boxes])
        node = node_type(answer, call_rule, (call, *call.leaves), {}, argnums, parents)
        return new_box(answer, number, node)

    return traced_value(call, number, enter)


def protected(leaf: Any) -> Any:
    """A leaf that rules cannot write into."""
    return leaf if isbox(leaf) else read_only_leaf(leaf)


def traced_value(call: RuleCall, number: int, enter: Callable[[Any], Any]) -> Any:
    """The value of a call, with differentiable leaves in boxes of the trace."""
    outputs, structure = flatten(call.value)
    places = with_derivative(outputs)
    for place in places:
        require_plain_array(call.function, outputs[place])
        require_from_arguments(call.function, outputs[place], number)
    if not places:
        return call.value
    box = enter(bundle([outputs[place] for place in places]))
    traced = substitute(outputs, places, unbundle(box, len(places)))
    return unflatten(structure, traced)


def with_derivative(leaves: Sequence[Any]) -> list[int]:
    """The places of the leaves that are floating-point numbers or arrays, or boxes of them."""
    return [place for place, leaf in enumerate(leaves) if is_differentiable(getval(leaf))]


def bundle(leaves: Sequence[Any]) -> Any:
    """The value of a call for a trace: its only leaf, or a tuple of several leaves."""
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def unbundle(value: Any, count: int) -> list[Any]:
    return [value] if count == 1 else [value[number] for number in range(count)]


# ------------------------------------------------------------------------------ boxes of containers


def flatten_arguments(args: tuple) -> tuple[list[Any], Any]:
    """The leaves and the structure of arguments, boxes of dicts and tuples taken apart."""
    leaves, structure = flatten(args)
    if not any(isinstance(leaf, DictBox | SequenceBox) for leaf in leaves):
        return leaves, structure
    return flatten(unflatten(structure, list(map(unbox_container, leaves))))


def unbox_container(leaf: Any) -> Any:
    """A box of a dict, list or tuple as a dict, list or tuple of boxes; other leaves unchanged."""
    if isinstance(leaf, DictBox):
        return {key: unbox_container(leaf[key]) for key in leaf}
    if isinstance(leaf, SequenceBox):
        items = [unbox_container(leaf[number]) for number in range(len(leaf))]
        plain = getval(leaf)
        if hasattr(plain, "_fields"):
            return type(plain)(*items)
        return items if isinstance(plain, list) else tuple(items)
    return leaf


# ------------------------------------------------------------------------------------ the two rules


def pullback_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """The function's own rule for reverse mode, with its results checked. It keeps no more of the
    call alive than the function's pullback."""
    call: RuleCall = args[0]
    function, value = call.function, Space(call.value)
    if isinstance(function, RecordedRun):
        return lambda g: function.pull(call, argnums, unbundle(g, len(value.places)))
    arguments = list(map(Space, call.args))
    active = [argnum - 1 for argnum in argnums]
    pull = function.pullback(call, active)

    def rule_pullback(g: Any) -> tuple:
        pulled = pull(value.in_structure(g))
        require_one_each(function, pulled, len(arguments))
        leaves = [
            leaf
            for number, (space, cotangent) in enumerate(zip(arguments, pulled, strict=True))
            for leaf in space.check(cotangent, f"cotangent of {function.argument(number)}")
        ]
        return tuple([leaves[place] for place in active])

    return rule_pullback


def push_rule(argnums: tuple, gs: Sequence[Any], ans: Any, args: tuple, kwargs: dict) -> Any:
    """The rule for forward mode: the function's own, with its results checked."""
    call: RuleCall = args[0]
    if isinstance(call.function, RecordedRun):
        return call.function.push(call, argnums, gs)
    call.require_unchanged()
    zeros = map(cotangents.zeros, map(shape_of, call.leaves))
    active = [argnum - 1 for argnum in argnums]
    tangents = substitute(zeros, active, map(protected, gs))
    pushed = call.function.push(call, call.with_leaves(tangents))
    space = Space(call.value)
    leaves = space.check(pushed, f"tangent of the value of {call.function.name!r}")
    return bundle([leaves[place] for place in space.places])


defvjp_argnums(call_rule, pullback_rule)
defjvp_argnums(call_rule, push_rule)


class Space:
    """Structure, shapes and dtypes of the derivatives of a value; holds none of its arrays."""

    def __init__(self, value: Any):
        leaves, self._structure = flatten(value)
        self._leaves = list(map(shape_of, leaves))
        self.places = with_derivative(self._leaves)

    def in_structure(self, bundle: Any) -> Any:
        """The derivatives of the traced leaves in the value's structure, read-only, since others
        may use the arrays; ``None`` elsewhere."""
        arrived = map(protected, unbundle(bundle, len(self.places)))
        leaves = substitute([None] * len(self._leaves), self.places, arrived)
        return unflatten(self._structure, leaves)

    def check(self, derivative: Any, subject: str) -> list[Any]:
        """The leaves of a rule's result, dense; raises if structure, shapes or dtypes differ."""
        if derivative is None:
            return list(map(cotangents.zeros, self._leaves))
        leaves, structure = flatten(derivative)
        if structure != self._structure:
            expected = describe(unflatten(self._structure, self._leaves))
            raise ValueError(
                f"{subject}: expected the structure of {expected}; found {describe(derivative)}"
            )
        pairs = zip(leaves, self._leaves, strict=True)
        return [fit(leaf, expected, subject) for leaf, expected in pairs]


def shape_of(leaf: Any) -> Any:
    return without_memory(getval(leaf))


def fit(derivative: Any, leaf: Any, subject: str) -> Any:
    """A derivative in its leaf's dtype, or an error; a derivative in a box keeps its dtype."""
    if derivative is None:
        return cotangents.zeros(leaf)
    checked = cotangents.check(getval(derivative), leaf, subject)
    return derivative if isbox(derivative) else checked


# ------------------------------------------------------------------------------ while recorded


class RecordedRun:
    """A function with rules of its own while a program is recorded: it runs on plain arrays, as one
    call of the program, and so does its pullback. Leaves that are no arrays are constants.

    ``is_traced``: by the trace of the model, so that the run makes residuals.
    """

    def __init__(self, function: Any, structure: Any, kwargs: dict, is_traced: bool):
        self.function, self.name, self.__name__ = function, function.name, function.name
        self._structure, self._is_traced = structure, is_traced
        self._named, self._of_named = flatten(kwargs)
        self._kind: Any = None  # of the value

    def record(self, box: Any, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The call, with boxes for its arrays and residuals, and its value."""
        kept, *arrays = box.record_call(self, (*leaves, *self._named), 1)
        of_value, kinds = self._kind
        self._named = []  # the boxes
        remaining = iter(arrays)
        value = unflatten(
            of_value, [kind[0] if len(kind) == 1 else next(remaining) for kind in kinds]
        )
        return RuleCall(self, tuple(leaves), self._structure, {}, value, kept), value

    def __call__(self, *leaves: Any) -> list[Any]:
        """The call, or None, and the arrays of the value; Diverged if the value's kind is another
        than when it was recorded."""
        arguments, count = list(map(read_only_leaf, leaves)), self._structure.num_leaves
        kwargs = unflatten(self._of_named, arguments[count:])
        args = unflatten(self._structure, arguments[:count])
        call = None
        if self._is_traced:
            run = flatten(self.function.run(args, kwargs))
            value, residuals = kept_run(*run, arguments, Copies())
            of_args = tuple(arguments[:count]), self._structure
            references = checksums(self.function.run_again())
            call = RuleCall(self.function, *of_args, kwargs, value, residuals, references)
        else:
            value, residuals = self.function.fun(*args, **kwargs), None
        outputs, of_value = flatten(value)
        kind = of_value, list(map(kind_of_output, outputs))
        if self._kind is None:
            if holds_boxes((value, residuals)):
                raise TypeError("it uses an array that is not an argument of it")
            self._kind = kind
        if kind != self._kind:
            raise Diverged
        arrays = [leaf for leaf, output in zip(outputs, kind[1], strict=True) if len(output) > 1]
        return [call, *arrays]

    def pull(self, call: RuleCall, argnums: tuple, cotangents: Sequence[Any]) -> tuple:
        kept = call.residuals
        return tuple(kept.record_call(pull_call, (kept, argnums, [*cotangents])))

    def push(self, call: RuleCall, argnums: tuple, tangents: Sequence[Any]) -> Any:
        kept = call.residuals
        return bundle(kept.record_call(push_call, (kept, argnums, [*tangents])))


def pull_call(call: RuleCall, argnums: tuple, cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of a call's leaves, by its function's own rule."""
    return list(pullback_rule(argnums, None, (call,), {})(bundle(cotangents)))


def push_call(call: RuleCall, argnums: tuple, tangents: Sequence[Any]) -> list[Any]:
    pushed = push_rule(argnums, tangents, None, (call,), {})
    return list(pushed) if isinstance(pushed, tuple) else [pushed]


def kind_of_output(leaf: Any) -> tuple:
    """A constant; for an array or number all that is known before a run."""
    if isinstance(leaf, np.ndarray | np.generic):
        return type(leaf), leaf.dtype, leaf.shape
    return (type(leaf), None) if type(leaf) in (bool, int, float, complex) else (leaf,)


# ------------------------------------------------------------------------------------------- checks


def require_one_each(function: Any, pulled: Any, count: int) -> None:
    if not isinstance(pulled, tuple | list):
        raise TypeError(
            f"the backward function of {function.name!r} must return a tuple with a cotangent for "
            f"each of {count} positional arguments; found {describe(getval(pulled))}"
        )
    if len(pulled) != count:
        raise ValueError(
            f"the backward function of {function.name!r} returned {len(pulled)} cotangents for "
            f"{count} positional arguments; return None for those without derivative"
        )


def require_plain_keywords(function: Any, kwargs: dict) -> None:
    """Raises if a keyword argument is differentiated: rules would lose its derivative."""
    for name, value in kwargs.items():
        if any([isbox(leaf) and not is_recorded(leaf) for leaf in flatten(value)[0]]):
            raise TypeError(
                f"keyword argument {name!r} of {function.name!r} is differentiated, but its rules "
                f"are for positional arguments; pass it by position"
            )


def require_plain_array(function: Any, leaf: Any) -> None:
    """Raises for subclasses of NumPy's array, such as the np.matrix of old sparse matrices."""
    if isinstance(leaf, np.ndarray) and not (type(leaf) is np.ndarray or isbox(leaf)):
        raise TypeError(
            f"{function.name!r} returned a {type(leaf).__name__}, which cannot be differentiated; "
            f"convert it with np.asarray"
        )


def require_from_arguments(function: Any, leaf: Any, number: int) -> None:
    """Raises if a box of the trace came in through a closure or a global: the rules miss it."""
    if isbox(leaf) and leaf._trace >= number:
        raise TypeError(
            f"{function.name!r} depends on a differentiated value that is not an argument, "
            f"so its rules cannot differentiate it; pass it as an argument"
        )


def holds_boxes(tree: Any) -> bool:
    """Whether a trace is at work on some leaf."""
    return any(map(isbox, flatten(tree)[0]))
