"""Optimiser: updates the arrays of a pytree in place, leaf by leaf, by the rule of a subclass."""

import abc
import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import AttachedElsewhere, Update
from daskgrad.autodiff.values.rows import Rows
from daskgrad.optim.elsewhere import attached_slot, changing, here, step_elsewhere
from daskgrad.optim.leaves import Leaf, leaves_of, pairs_of

Rate = float | Callable[[int], float]
State = dict[str, Any]  # arrays, also attached ones

BLOCK = 2**18  # bytes of rows that are updated at a time: with what the rule makes, a cache's worth


@dataclass(frozen=True)
class Optimiser(abc.ABC):
    """Changes parameters in place: ``state = opt.init(params)`` before the first step, and
    ``opt.update(params, gradients, state)`` at each.

    ``params`` is a pytree of writeable float arrays; what else stands in it stays as it is.
    ``gradients`` has its structure, with arrays or ``Rows`` for these, or ``None`` for an array
    that stays as it is. ``state`` is a dict of arrays by name, changed in place as well:
    ``numpy.savez(file, **state)`` saves it, and ``dict(numpy.load(file))`` loads it.

    With ``Rows`` only the entries that occur are looked at and changed: each takes the steps that
    it occurs in, as if it were optimised alone. For SGD and Adagrad that is the step of the dense
    gradient, with the same bits; the averages and momenta of other optimisers do not decay in
    between.

    What is kept of an array that is attached to placed items (``Shards.attach``) is attached, too:
    it and its gradient stay there.

    ``rate`` is a number, or a function of the number of the step, from 0 on (``schedules``).
    """

    rate: Rate
    slots: ClassVar[tuple[str, ...]] = ()  # arrays of a parameter's shape that the rule keeps
    counts_steps: ClassVar[bool] = False  # whether it asks how many steps an entry has taken

    def __post_init__(self) -> None:
        require_rate(self.rate)

    @abc.abstractmethod
    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        """What one step subtracts, entry by entry: changes the slots in place, and never ``g``.

        ``steps`` says how many steps the entries have taken, this one included, if the rule
        counts them; it broadcasts against ``g``.
        """

    def take(self, pairs: Iterable[tuple[np.ndarray, np.ndarray]], rate: float) -> None:
        """Takes such steps: changes the first of each pair, in place, by the second."""
        for x, step in pairs:
            x -= step

    def step(
        self, x: np.ndarray, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray
    ) -> None:
        """One step of an array and its slots, in place."""
        self.take([(x, self.rule(g, rate, steps, *slots))], rate)

    def init(self, params: Any) -> State:
        """The state before the first step.

        TypeError if a number or a complex array stands where an array of floats should, and
        ValueError if an array is read-only.
        """
        state: State = {"step": np.zeros((), np.int64)}
        for leaf in leaves_of(params):
            if self.counts_steps:
                state[leaf.key("steps")] = np.zeros((1,) * leaf.array.ndim, np.int32)
            for slot in self.slots:
                is_here = not isinstance(leaf.array, AttachedElsewhere)
                state[leaf.key(slot)] = np.zeros_like(leaf.array) if is_here else leaf.array.slot()
        return state

    def update(self, params: Any, gradients: Any, state: State) -> None:
        """Takes one step, in place.

        TypeError or ValueError, before anything is changed, if gradients or state do not fit the
        parameters; RuntimeError if a sum that uses a replicated or attached array is being
        evaluated, or a gradient of an attached one was lost.
        """
        pairs = pairs_of(params, gradients)
        attached = [pair for pair in pairs if isinstance(pair[0].array, AttachedElsewhere)]
        pairs = [pair for pair in pairs if not isinstance(pair[0].array, AttachedElsewhere)]
        require_state(state, "step", (), "i", "")
        for leaf, _ in [*attached, *pairs]:
            for slot in self.slots:
                require_state(state, leaf.key(slot), leaf.array.shape, "f", leaf.path)
            if self.counts_steps:
                require_state(state, leaf.key("steps"), leaf.array.shape, "i", leaf.path, True)
        rate = rate_at(self.rate, int(state["step"]))
        whole = [pair for pair in attached if not isinstance(pair[1], Rows)]
        changes = [(leaf.array, gradient) for leaf, gradient in pairs]
        with changing(changes, [leaf.array for leaf, _ in attached]):
            step_elsewhere([self._change(*pair, rate, state) for pair in whole])
            state["step"] += 1
            for leaf, gradient in pairs:
                self._step(leaf, gradient, rate, state)
            for leaf, gradient in attached:
                if isinstance(gradient, Rows):
                    with here([leaf.array, *self._attached_slots(leaf, state)]) as arrays:
                        in_memory = Leaf(leaf.path, arrays[0])
                        self._step_of_rows(in_memory, gradient, rate, arrays[1:], state)
                else:
                    self._count(leaf, state)

    def _change(self, leaf: Leaf, gradient: Any, rate: float, state: State) -> Update:
        """What a step does to an attached array, wherever it is."""
        slots = self._attached_slots(leaf, state)
        steps = state[leaf.key("steps")] if self.counts_steps else state["step"]
        rule = copy.copy(self)
        object.__setattr__(rule, "rate", rate)  # a schedule may be no message
        return Update(leaf.array, gradient, rule, rate, steps + 1, slots)

    def _attached_slots(self, leaf: Leaf, state: State) -> list[AttachedElsewhere]:
        """What is kept of an attached array; attaches what was loaded."""
        for key in map(leaf.key, self.slots):
            state[key] = attached_slot(leaf.array, state[key])
        return [state[key] for key in map(leaf.key, self.slots)]

    def _step(self, leaf: Leaf, gradient: np.ndarray | Rows, rate: float, state: State) -> None:
        slots = [state[leaf.key(slot)] for slot in self.slots]
        if isinstance(gradient, Rows):
            self._step_of_rows(leaf, gradient, rate, slots, state)
        else:
            self.step(leaf.array, gradient, rate, self._count(leaf, state), *slots)

    def _step_of_rows(
        self, leaf: Leaf, rows: Rows, rate: float, slots: Sequence[np.ndarray], state: State
    ) -> None:
        for block in rows.blocks(BLOCK):
            parts = [block.gather(array) for array in slots]
            step = self.rule(block.values, rate, self._count_rows(leaf, block, state), *parts)
            for array, part in zip(slots, parts, strict=True):
                block.scatter(array, part)
            block.change(leaf.array, step, functools.partial(self.take, rate=rate))

    def _count(self, leaf: Leaf, state: State) -> np.ndarray:
        """How many steps each entry of a parameter has taken, with this one."""
        if not self.counts_steps:
            return state["step"]
        steps = state[leaf.key("steps")]
        steps += 1
        return steps

    def _count_rows(self, leaf: Leaf, rows: Rows, state: State) -> np.ndarray:
        if not self.counts_steps:
            return state["step"]
        key = leaf.key("steps")
        state[key] = steps = widened(state[key], rows)
        counted = rows.gather(steps) + 1
        rows.scatter(steps, counted)
        return counted


def require_state(
    state: Any, key: str, shape: tuple[int, ...], kind: str, path: str, is_count: bool = False
) -> None:
    """Raises unless the state has a writeable array of this shape, or of counts, which may have
    one for all entries of an axis."""
    if not isinstance(state, dict):
        raise TypeError(
            f"the state of an optimiser must be a dict of arrays, as init makes it; found "
            f"{describe(state)}; of a file pass dict(numpy.load(file))"
        )
    found = state.get(key)
    if isinstance(found, AttachedElsewhere) and found.shape == shape:
        return
    if isinstance(found, np.ndarray) and found.dtype.kind == kind and found.flags.writeable:
        if found.shape == shape:
            return
        pairs = zip(found.shape, shape, strict=False)
        if is_count and found.ndim == len(shape) and all([x in (1, full) for x, full in pairs]):
            return
    raise ValueError(
        f"the state needs a writeable array {key!r} that fits params{path} of shape {shape}; found "
        f"{describe(found)}; make it with init(params), or load the one that was saved with these "
        f"parameters and this optimiser"
    )


def widened(steps: np.ndarray, rows: Rows) -> np.ndarray:
    """Counts of steps with a number for each entry of the indexed axes: before, those of an axis
    had taken the same steps."""
    shape = [rows.shape[n] if n in rows.axes else size for n, size in enumerate(steps.shape)]
    return steps if steps.shape == tuple(shape) else np.broadcast_to(steps, shape).copy()


def require_rate(rate: Any) -> None:
    if not callable(rate):
        require_number(rate, "the rate", 0.0)


def rate_at(rate: Rate, step: int) -> float:
    if not callable(rate):
        return float(rate)  # NumPy's would set the precision of the step
    found = rate(step)
    require_number(found, f"the rate of step {step}", 0.0)
    return float(found)


def require_number(number: Any, what: str, least: float, below: float = np.inf) -> None:
    is_real = isinstance(number, int | float | np.integer | np.floating)
    if not is_real or isinstance(number, bool):
        raise TypeError(f"{what} must be a real number; found {describe(number)}")
    if not least <= number < below:
        until = "" if below == np.inf else f" and below {below:g}"
        raise ValueError(f"{what} must be at least {least:g}{until}; found {number!r}")
