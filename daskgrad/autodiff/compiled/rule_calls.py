"""Rule calls: calls of functions with rules of their own (``custom_vjp``, ``implicit``), recorded.

Such a call is opaque: the program calls the function, and its pullback is the one that the tape
would have made. What is not differentiated is passed to the function and taken from its value as
data.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.tracer import isbox, new_box

from daskgrad.autodiff.compiled.boxes import ARRAYS, HIDDEN, is_box, part_of
from daskgrad.autodiff.compiled.program import Diverged
from daskgrad.autodiff.compiled.steps import PYTHONS, Recording, Step
from daskgrad.autodiff.tape.rule_calls import Call, bundle, call_rule, unbundle, with_derivative
from daskgrad.autodiff.values.protection import read_only_leaf
from daskgrad.autodiff.values.trees import flatten, map_leaves, substitute, unflatten


def record_rule_call(function: Any, leaves: Sequence[Any], structure: Any, kwargs: dict) -> Any:
    """The value of a call whose arguments are in recording boxes."""
    named, of_named = flatten(kwargs)
    given = [*leaves, *named]
    places = [place for place, leaf in enumerate(given) if is_box(leaf)]
    steps = [given[place]._node for place in places]
    traced = [place for place, step in zip(places, steps, strict=True) if step.is_traced]
    recording = steps[0].recording
    values = [HIDDEN.__get__(given[place]) for place in places]
    fun = RuleCall(function, given, structure, of_named, places, bool(traced))
    try:
        parts = fun.first_run(values)
    except Exception as error:  # which the model may catch
        raise recording.refuse(f"{fun.__name__} raises {type(error).__name__}: {error}") from error
    if any(map(isbox, fun.leaves_within(parts))):
        raise recording.refuse(f"{fun.__name__} uses an array that is not an argument of it")
    run = Step.of_call(recording, parts, fun, steps, {})
    outputs = [
        part_of(run, number, leaf) if isinstance(leaf, ARRAYS) else leaf
        for number, leaf in enumerate(parts[2:], 2)
    ]
    if fun.active:
        answer = answer_step(recording, run, traced, [given[place]._node for place in traced])
        box = new_box(answer.value, recording.number, answer)
        outputs = substitute(outputs, fun.active, unbundle(box, len(fun.active)))
    return unflatten(fun.structure_of_value, outputs)


def answer_step(
    recording: Recording, run: Step, places: Sequence[int], parents: Sequence[Step]
) -> Step:
    """What the tape records of a call: the leaves of its value that have derivatives."""
    call, answer = [
        Step.of_call(recording, run.value[number], operator.getitem, (run, number), {})
        for number in (0, 1)
    ]
    argnums = tuple([place + 1 for place in places])
    args = (call, answer)  # the rule of ``call_rule`` asks for the first alone
    return Step.of_call(recording, answer.value, call_rule, args, {}, argnums, tuple(parents))


class RuleCall:
    """Calls a function on the leaves that stood in boxes; the others are constants.

    The result is a list: the call for the pullback, the leaves that the tape records, and all
    leaves of the value. ``active``: the places of the recorded ones. Diverged if a value is of
    another kind than when it was recorded.
    """

    def __init__(
        self,
        function: Any,
        leaves: Sequence[Any],
        structure: Any,
        of_named: Any,
        places: Sequence[int],
        is_traced: bool,
    ):
        self.__name__ = function.name
        self._function = function
        self._leaves = [None if place in places else leaf for place, leaf in enumerate(leaves)]
        self._structure, self._of_named = structure, of_named
        self._places = places
        self._run: Callable = self._run_rule if is_traced else self._run_plainly
        self._is_traced = is_traced
        self.structure_of_value: Any = None
        self._kinds: list[Any] = []
        self.active: list[int] = []

    def first_run(self, values: Sequence[Any]) -> list[Any]:
        """The result, of which all later ones are to be alike."""
        call, leaves, self.structure_of_value = self._run(*values)
        self._kinds = list(map(kind_of_part, leaves))
        self.active = with_derivative(leaves) if self._is_traced else []
        return self._parts(call, leaves)

    def __call__(self, *values: Any) -> list[Any]:
        call, leaves, structure = self._run(*values)
        if structure != self.structure_of_value or list(map(kind_of_part, leaves)) != self._kinds:
            raise Diverged
        return self._parts(call, leaves)

    def leaves_within(self, parts: Sequence[Any]) -> list[Any]:
        """All leaves that a run returned, residuals included."""
        call, _, *leaves = parts
        return leaves if call is None else [*leaves, *flatten(call.residuals)[0]]

    def _parts(self, call: Call | None, leaves: Sequence[Any]) -> list[Any]:
        answer = bundle([leaves[place] for place in self.active]) if self.active else None
        return [call, answer, *leaves]

    def _run_rule(self, *values: Any) -> tuple[Call, list[Any], Any]:
        """As ``custom.call_rule`` does on boxes."""
        leaves, kwargs = self._arguments(values)
        run = self._function.run(unflatten(self._structure, leaves), kwargs)
        value, residuals = map_leaves(read_only_leaf, run)
        call = Call(self._function, tuple(leaves), self._structure, kwargs, value, residuals)
        return call, *flatten(value)

    def _run_plainly(self, *values: Any) -> tuple[None, list[Any], Any]:
        leaves, kwargs = self._arguments(values)
        return None, *flatten(self._function.fun(*unflatten(self._structure, leaves), **kwargs))

    def _arguments(self, values: Sequence[Any]) -> tuple[list[Any], dict]:
        leaves = list(map(read_only_leaf, substitute(self._leaves, self._places, values)))
        count = self._structure.num_leaves
        return leaves[:count], unflatten(self._of_named, leaves[count:])


def kind_of_part(leaf: Any) -> Any:
    """What a program knows of a leaf: of numbers all but their values."""
    if isinstance(leaf, np.ndarray | np.generic):
        return type(leaf), leaf.dtype, leaf.shape
    return type(leaf) if type(leaf) in PYTHONS else (type(leaf), leaf)


Step.record_rule_call = staticmethod(record_rule_call)
