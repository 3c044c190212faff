"""Optimiser: updates the arrays of a pytree in place, leaf by leaf, by the rule of a subclass."""

import abc
import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.values.descriptions import describe, is_number
from daskgrad.autodiff.values.elsewhere import (
    AttachedElsewhere,
    Changing,
    CotangentElsewhere,
    Update,
    replicated_of,
)
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten

Rate = float | Callable[[int], float]
State = dict[str, Any]  # arrays, also attached ones

BLOCK = 2**18  # bytes of rows that are updated at a time: a cache's worth, with temporaries


# -------------------------------------------------------------------------------------------------
# Parameters: the arrays of a pytree, with their names, and the gradients that fit.


class Leaf(NamedTuple):
    """A parameter: its path in the pytree, as in code, and the array, which may be attached."""

    path: str
    array: Any

    def key(self, name: str) -> str:
        """The name, in the state, of an array of this parameter."""
        return f"{name}{self.path}"


@functools.lru_cache(maxsize=64)
def paths_of(structure: optree.PyTreeSpec) -> list[str]:
    return [accessor.codify("") for accessor in structure.accessors()]


def leaves_of(params: Any) -> list[Leaf]:
    """The parameters that can be optimised: float arrays."""
    leaves, structure = flatten(params)
    return [leaf for leaf in map(Leaf, paths_of(structure), leaves) if is_parameter(*leaf)]


def is_parameter(path: str, leaf: Any) -> bool:
    """Whether a leaf is optimised; TypeError or ValueError for one that should be, and cannot."""
    if type(leaf) is np.ndarray and leaf.dtype.char in "df" and leaf.flags.writeable:
        return True  # as most are
    name = f"params{path}"
    if isinstance(leaf, float | complex | np.inexact):
        raise TypeError(
            f"{name} is the number {leaf!r}, which cannot be changed in place; make it an array, "
            f"np.array({leaf!r})"
        )
    if isinstance(leaf, AttachedElsewhere):
        return True
    if leaf is None or isinstance(leaf, bool | int | str | bytes | np.generic):
        return False
    if type(leaf) not in (np.ndarray, np.memmap):
        raise TypeError(
            f"{name} is {describe(leaf)}, and parameters are arrays, in dicts, lists, tuples and "
            f"registered dataclasses; pass these"
        )
    if leaf.dtype.kind in "biuSU":
        return False
    if leaf.dtype.kind != "f" or leaf.dtype.itemsize < 4:
        raise TypeError(
            f"{name} is {describe(leaf)}, and optimisers take real arrays in single precision or "
            f"better; pass real and imaginary parts of complex ones, and float32 for float16"
        )
    if not leaf.flags.writeable and replicated_of(leaf) is None:
        raise ValueError(f"{name} is read-only and cannot be changed in place; pass a copy")
    return True


def pairs_of(params: Any, gradients: Any) -> list[tuple[Leaf, Any]]:
    """The parameters that have a gradient, with it; an error if a gradient does not fit."""
    gradients, other = flatten(gradients)
    leaves, structure = flatten(params)
    if other != structure:
        raise ValueError(f"gradients have the structure {other}, and the parameters {structure}")
    return [
        (Leaf(path, leaf), require_gradient(gradient, path, leaf))
        for path, leaf, gradient in zip(paths_of(structure), leaves, gradients, strict=True)
        if is_parameter(path, leaf) and gradient is not None
    ]


def require_gradient(
    gradient: Any, path: str, array: Any
) -> np.ndarray | Rows | CotangentElsewhere:
    stays = isinstance(gradient, CotangentElsewhere) and gradient.attached is array
    fitting = gradient if stays or isinstance(gradient, Rows) else np.asarray(gradient)
    if fitting.dtype.kind != "f" or fitting.shape != array.shape:
        raise ValueError(
            f"the gradient of params{path}, {describe(array)}, must be a real "
            f"floating-point array or Rows of its shape; found {describe(gradient)}"
        )
    return fitting


# -------------------------------------------------------------------------------------------------
# Arrays that are not in this process, or that others have copies of.


@contextlib.contextmanager
def changing(
    changes: Iterable[tuple[np.ndarray, Any]], attached: Iterable[AttachedElsewhere]
) -> Iterator[None]:
    """A context in which arrays may change: replicated ones are writeable, and no evaluation that
    uses attached ones begins. ``changes``: arrays, with the gradients that change them.

    RuntimeError, before any array changes, if an evaluation uses one.
    """
    copied = [(replicated_of(array), array, gradient) for array, gradient in changes]
    known = [change for change in copied if change[0] is not None]
    known.sort(key=lambda change: change[0].name)  # so that threads do not wait for each other
    attachments = {id(array.attachment): array.attachment for array in attached}
    with contextlib.ExitStack() as stack:
        for copies, _, _ in known:
            stack.enter_context(copies.without_readers())
        for copies, array, gradient in known:
            rows = gradient if isinstance(gradient, Rows) else None
            stack.enter_context(copies.changing(array, rows))
        for attachment in sorted(attachments.values(), key=id):
            stack.enter_context(attachment.without_readers())
        yield


def step_elsewhere(updates: Sequence[Update]) -> None:
    """Takes a step of all of these arrays, at once for arrays of the same items; or of none of
    them, if a gradient is lost or a rule fails."""
    by_attachment: dict[Changing, list[Update]] = {}
    for update in updates:
        try_out(update)
        by_attachment.setdefault(update.array.attachment, []).append(update)
    for take in [attachment.ready(group) for attachment, group in by_attachment.items()]:
        take()


def try_out(update: Update) -> None:
    """Takes the step of one row of zeros in this process: an error of a user's rule on workers
    would come again in every later call."""
    row = np.zeros((1, *update.array.shape[1:]), update.array.dtype)
    steps = update.steps[:1] if update.steps.ndim else update.steps
    slots = [row.copy() for _ in update.slots]
    with np.errstate(all="ignore"):
        update.optimiser.step(row, row.copy(), update.rate, steps, *slots)


# ------------------------------------------------------------------------------------ optimiser


@dataclass(frozen=True)
class Optimiser(abc.ABC):
    """Changes parameters in place: ``state = opt.init(params)`` before the first step, and
    ``opt.update(params, gradients, state)`` at each.

    ``params`` is a pytree of writeable float arrays; other leaves stay as they are. ``gradients``
    has its structure, with arrays or ``Rows`` for the arrays, or ``None`` for an array that stays
    as it is. ``state`` is a dict of arrays by name, changed in place as well:
    ``numpy.savez(file, **state)`` saves it, and ``dict(numpy.load(file))`` loads it.

    With ``Rows`` only the entries that occur are changed: each takes the steps that it occurs in,
    as if it were optimised alone. For SGD and Adagrad this is the step of the dense gradient, with
    the same bits; the averages and momenta of other optimisers do not decay in between.

    If an array is attached to placed items (``Shards.attach``), its state is attached, too: the
    array, its state and its gradient stay there.

    ``rate`` is a number, or a function of the number of the step, from 0 on (``schedules``).
    """

    rate: Rate
    slots: ClassVar[tuple[str, ...]] = ()  # arrays of a parameter's shape that the rule keeps
    counts_steps: ClassVar[bool] = False  # whether the rule needs the steps of each entry
    ranges: ClassVar[Mapping[str, tuple]] = {}  # of settings: name in errors, least, end

    def __post_init__(self) -> None:
        require_rate(self.rate)
        for setting, (name, *ends) in self.ranges.items():
            require_number(getattr(self, setting), name, *ends)

    @abc.abstractmethod
    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        """The number that one step subtracts from each entry; changes the slots, but never ``g``.

        ``steps``: the steps that the entries have taken, with this one, if the rule counts them; it
        broadcasts against ``g``.
        """

    def take(self, pairs: Iterable[tuple[np.ndarray, np.ndarray]], rate: float) -> None:
        """Changes the first array of each pair in place, by the second, the rule's result."""
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

        TypeError or ValueError, before anything changes, if gradients or state do not fit the
        parameters; RuntimeError during an evaluation of a sum that uses a replicated or attached
        array, or if the gradient of an attached one was lost.
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
                if not isinstance(gradient, Rows):
                    self._count(leaf, state)
                    continue
                alike = [leaf.array, *self._attached_slots(leaf, state)]
                with leaf.array.attachment.rewriting() as held:  # in this process
                    x, *slots = [held.setdefault(a.name, np.zeros(a.shape, a.dtype)) for a in alike]
                    self._step_of_rows(leaf._replace(array=x), gradient, rate, slots, state)

    def _change(self, leaf: Leaf, gradient: Any, rate: float, state: State) -> Update:
        """The update of an attached array, for its workers."""
        slots = self._attached_slots(leaf, state)
        steps = state[leaf.key("steps")] if self.counts_steps else state["step"]
        rule = copy.copy(self)
        object.__setattr__(rule, "rate", rate)  # a schedule may be no message
        return Update(leaf.array, gradient, rule, rate, steps + 1, slots)

    def _attached_slots(self, leaf: Leaf, state: State) -> list[AttachedElsewhere]:
        """The state of an attached array; attaches a loaded one."""
        keys = list(map(leaf.key, self.slots))
        for key in keys:
            if getattr(state[key], "attachment", None) is not leaf.array.attachment:
                slot = leaf.array.slot()
                slot.fill(np.asarray(state[key]))
                state[key] = slot
        return [state[key] for key in keys]

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
            step = self.rule(block.values, rate, self._count(leaf, state, block), *parts)
            for array, part in zip(slots, parts, strict=True):
                block.scatter(array, part)
            block.change(leaf.array, step, functools.partial(self.take, rate=rate))

    def _count(self, leaf: Leaf, state: State, rows: Rows | None = None) -> np.ndarray:
        """The steps that each entry of a parameter, or of its rows, has taken, with this one."""
        if not self.counts_steps:
            return state["step"]
        key = leaf.key("steps")
        if rows is None:
            state[key] += 1
            return state[key]
        state[key] = steps = widened(state[key], rows)
        counted = rows.gather(steps) + 1
        rows.scatter(steps, counted)
        return counted


def require_state(
    state: Any, key: str, shape: tuple[int, ...], kind: str, path: str, is_count: bool = False
) -> None:
    """Raises unless the state has a writeable array of this shape; counts may have one number for
    all entries of an axis."""
    if not isinstance(state, dict):
        raise TypeError(
            f"the state of an optimiser must be a dict of arrays, as init makes it; found "
            f"{describe(state)}; of a file pass dict(numpy.load(file))"
        )
    array = state.get(key)
    if isinstance(array, AttachedElsewhere) and array.shape == shape:
        return
    if isinstance(array, np.ndarray) and array.dtype.kind == kind and array.flags.writeable:
        if array.shape == shape:
            return
        pairs = zip(array.shape, shape, strict=False)
        if is_count and array.ndim == len(shape) and all([x in (1, full) for x, full in pairs]):
            return
    raise ValueError(
        f"the state needs a writeable array {key!r} that fits params{path} of shape {shape}; found "
        f"{describe(array)}; make it with init(params), or load the one that was saved with these "
        f"parameters and this optimiser"
    )


def widened(steps: np.ndarray, rows: Rows) -> np.ndarray:
    """Counts of steps with a number for each entry of the rows' axes, instead of one for all."""
    shape = [rows.shape[n] if n in rows.axes else size for n, size in enumerate(steps.shape)]
    return steps if steps.shape == tuple(shape) else np.broadcast_to(steps, shape).copy()


def require_rate(rate: Any) -> None:
    if not callable(rate):
        require_number(rate, "the rate", 0.0)


def rate_at(rate: Rate, step: int) -> float:
    if not callable(rate):
        return float(rate)  # NumPy's would set the precision of the step
    number = rate(step)
    require_number(number, f"the rate of step {step}", 0.0)
    return float(number)


def require_number(number: Any, name: str, least: float, below: float = np.inf) -> None:
    if not is_number(number):
        raise TypeError(f"{name} must be a real number; found {describe(number)}")
    if not least <= number < below:
        until = "" if below == np.inf else f" and below {below:g}"
        raise ValueError(f"{name} must be at least {least:g}{until}; found {number!r}")
