"""Backward: writes the lines of a pullback, in the order of the tape.

Cotangents are added as ``reverse.Cotangents`` adds them: the second to the first in a new array,
all further ones in place. What the lines of ``adjoints`` do not cover is done by the tape's own
pullback of the call (``p…``) and by its own addition.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.builtins import container_take

from daskgrad.autodiff.compiled.adjoints import (
    ADJOINTS,
    COMPLEX,
    ENTRIES,
    Only,
    Pulled,
    Selected,
    is_real,
    is_thin,
    shape_of,
    spread,
)
from daskgrad.autodiff.compiled.lines import Line, Writer
from daskgrad.autodiff.compiled.steps import Step, Unrecordable
from daskgrad.autodiff.rules.declaration import ArrayBox
from daskgrad.autodiff.rules.indexing import rows_of_piece, sum_of_rows
from daskgrad.autodiff.tape.reverse import Cotangents, TapeNode, backward_order, pullback_of
from daskgrad.autodiff.values.entries import axis_of_array, entries_of, rows_along
from daskgrad.autodiff.values.rows import is_small


class Sum:
    """The cotangents of a step that have arrived; ``is_ours``: in an array made for them."""

    def __init__(self, name: str, is_ours: bool):
        self.name = name
        self.is_ours = is_ours


class Place(TapeNode):
    """A node of the tape as its order and its addition of cotangents need it."""

    __slots__ = ("step",)

    def __init__(self, step: Step):
        self.step = step
        self.is_real = step.kind == "f"
        self.parents = ()


def places_of(ends: Sequence[Step]) -> Sequence[Any]:
    """The steps that the ends depend on, in the tape's order."""
    places: dict[int, Place] = {}

    def place(step: Step) -> Place:
        return places.setdefault(id(step), Place(step))

    waiting = list(ends)
    while waiting:
        step = waiting.pop()
        if step.parents and not step.ends_tape and not place(step).parents:
            place(step).parents = tuple(map(place, step.parents))
            waiting.extend(step.parents)
    return backward_order([place(end) for end in ends])


def is_like(cotangent: Any, value: Any) -> bool:
    """Whether both are arrays or numbers of NumPy's of one dtype, which has derivatives."""
    are_known = [isinstance(each, np.ndarray | np.generic) for each in (cotangent, value)]
    return all(are_known) and cotangent.dtype == value.dtype and value.dtype.kind in "fc"


def add_up(previous: Any, is_ours: bool, cotangent: Any, is_real: bool) -> tuple[Any, bool]:
    """The tape's addition of a cotangent to those that have arrived, or to None."""
    sums, node = Cotangents(), TapeNode.__new__(TapeNode)
    node.is_real = is_real
    if previous is not None:
        sums._put(node, previous, is_ours)
    sums.add(node, cotangent)
    return sums.value[node], node in sums._ours


def is_kept(step: Step) -> bool:
    """Whether the tape would keep pieces of it: selections and transposes of what is asked for."""
    if step.fun not in (ArrayBox.__getitem__, anp.take, anp.transpose) or not step.parents:
        return False
    return step.parents[0].is_asked or is_kept(step.parents[0])


def is_only(pieces: Sequence[Any]) -> bool:
    return isinstance(pieces[0], Only)


class Backward:
    """Writes the pullback of a recording: from names of the outputs' cotangents to the inputs'."""

    def __init__(self, writer: Writer):
        self._writer = writer
        self.lines: list[Line] = []
        self.pullbacks: list[Line] = []  # and what else the forward pass makes
        self._sums: dict[int, Sum] = {}
        self._rows: dict[int, list[str]] = {}  # of inputs whose cotangents should be rows
        self._uses: Counter[int] = Counter()

    def write(
        self, ends: Sequence[Step], cotangents: Sequence[str], inputs: Sequence[Step]
    ) -> list[str]:
        """The names of the cotangents of the inputs; "None" where nothing arrives."""
        order = places_of(ends)
        self._uses.update([id(parent.step) for place in order for parent in place.parents])
        for end, cotangent in zip(ends, cotangents, strict=True):
            self._add(Place(end), cotangent)
        for place in order:
            if place.step.fun is not None and not place.step.ends_tape:
                arrived = self._sums.pop(id(place.step), None)
                if arrived is not None:
                    self._pull(place, arrived.name)
        return [self._of_input(step) for step in inputs]

    def _of_input(self, step: Step) -> str:
        rows = self._rows.get(id(step))
        if rows is not None:
            add = self._writer.name(sum_of_rows)
            return self._assign(
                f"{add}([{', '.join(rows)}], np.dtype({spelled(step.value.dtype)}))"
            )
        arrived = self._sums.get(id(step))
        if arrived is None:
            return "None"
        return self._full(arrived.name, step)

    def _full(self, name: str, step: Step) -> str:
        if not is_thin(self._writer.values[name], shape_of(step.value)):
            return name
        return self._assign(f"{self._writer.name(spread)}({name}, {self._shape(step)})")

    def _shape(self, step: Step) -> str:
        return self._writer.derive(shape_of, step)

    def _zeros(self, step: Step) -> str:
        dtype = "" if step.value.dtype == np.float64 else f", {spelled(step.value.dtype)}"
        return f"np.zeros({self._shape(step)}{dtype})"

    def _assign(self, text: str) -> str:
        if text in self._writer.values:
            return text
        name, line = self._writer.assign(text)
        self.lines.append(line)
        return name

    def _keep(self, text: str) -> str:
        """A name for what the forward pass computes for this one."""
        name, line = self._writer.assign(text, "p")
        self.pullbacks.append(line)
        return name

    def _pull(self, place: Place, g: str) -> None:
        step = place.step
        rule = ADJOINTS if self._is_simple(step, self._writer.values[g]) else COMPLEX
        found = None
        if step.fun in rule:
            found = rule[step.fun](Pulled(self._writer, step, g, self._assign, self._keep))
        if found is None or (is_only(found) and self._uses[id(step.parents[0])] > 1):
            return self._pull_opaque(place, g)
        for parent, text in zip(place.parents, found, strict=True):
            if isinstance(text, Only):
                self._sums[id(parent.step)] = Sum(text.text, False)
            elif isinstance(text, Selected) and parent.step.is_asked:
                self._add_rows(parent, text, step)
            elif isinstance(text, Selected):
                self._add_selected(parent, text)
            else:
                self._add(parent, self._assign(text))

    def _is_simple(self, step: Step, g: Any) -> bool:
        """Whether the cotangent and all that is traced are real and of one precision, and it has
        no more axes than the value, as after some rules of autograd's."""
        values = [g, *[parent.value for parent in step.parents], step.value]
        if step.fun is ArrayBox.__getitem__:
            values = values[:2]
        elif step.fun is container_take or step.fun in ENTRIES:
            values = [g]
        if not all(map(is_real, values)) or np.ndim(g) > len(shape_of(step.value)):
            return False
        return len({value.dtype for value in values}) == 1

    def _pull_opaque(self, place: Place, g: str) -> None:
        step, writer = place.step, self._writer
        given = [writer.name(step.fun), repr(step.argnums), writer.name(step)]
        given += [writer.spell(step.args), writer.spell(step.kwargs)]
        name = self._keep(f"{writer.name(pullback_of)}({', '.join(given)})")
        pulled = self._assign(f"tuple({name}({self._full(g, step)}))")
        for number, (parent, each) in enumerate(
            zip(place.parents, writer.values[pulled], strict=True)
        ):
            if each is not None:
                self._add(parent, self._assign(f"{pulled}[{number}]"))

    # ------------------------------------------------------------------------------ addition

    def _add(self, place: Place, name: str) -> None:
        if place.step.is_asked:
            raise Unrecordable("an array whose gradient should be rows is not only selected from")
        key, values = id(place.step), self._writer.values
        previous = self._sums.get(key)
        is_simple = is_like(values[name], place.step.value)
        if previous is None and is_simple:
            self._sums[key] = Sum(name, False)
        elif previous is None:
            self._add_by_tape(place, "None", False, name)
        elif not (is_simple and is_like(values[previous.name], place.step.value)):
            full = self._full(previous.name, place.step)
            self._add_by_tape(place, full, previous.is_ours, name)
        elif (
            previous.is_ours and np.shape(values[previous.name]) == shape_of(place.step.value) != ()
        ):
            self.lines.append(self._writer.run(previous.name, f"{previous.name} += {name}"))
        else:
            first, second = self._of_one_shape(place, previous.name, name)
            self._sums[key] = Sum(self._assign(f"{first} + {second}"), True)

    def _of_one_shape(self, place: Place, first: str, second: str) -> tuple[str, str]:
        """Two cotangents, both thin or both full: a sum has the memory order of its operands."""
        values, step = self._writer.values, place.step
        if np.ndim(step.value) < 2 or np.shape(values[first]) == np.shape(values[second]):
            return first, second
        return self._full(first, step), self._full(second, step)

    def _add_by_tape(self, place: Place, previous: str, is_ours: bool, name: str) -> None:
        writer = self._writer
        add = writer.name(add_up)
        both = self._assign(f"{add}({previous}, {is_ours}, {name}, {place.is_real})")
        total = self._assign(f"{both}[0]")
        self._sums[id(place.step)] = Sum(total, writer.values[both][1])

    def _add_rows(self, place: Place, piece: Selected, selection: Step) -> None:
        """Keeps the rows of a selection until all have arrived."""
        step, writer = place.step, self._writer
        index = eval(piece.where, writer.values)
        if entries_of(index, step.value.shape) is None:
            raise Unrecordable("an array whose gradient should be rows is used whole")
        g = piece.text
        if is_thin(writer.values[g], shape_of(selection.value)):
            g = f"np.broadcast_to({g}, {self._shape(selection)})"
        axis, shape = axis_of_array(index), self._shape(step)
        if axis is None:
            text = f"{writer.name(rows_of_piece)}({piece.where}, {shape}, {g})"
        else:
            array = f"{piece.where}[{axis}]" if isinstance(index, tuple) else piece.where
            text = f"{writer.name(rows_along)}({axis}, {array}, {shape}, {g})"
        self._rows.setdefault(id(step), []).append(self._assign(text))

    def _add_selected(self, place: Place, piece: Selected) -> None:
        step, values = place.step, self._writer.values
        if is_kept(step):
            raise Unrecordable("rows are selected from an array whose gradient should be rows")
        if step.fun is None and not is_small(step.value):
            raise Unrecordable(
                "a slice of a large array is used, whose cotangent stays a slice: it is compiled "
                "where the gradient is asked for as rows (sparse=)"
            )
        previous = self._sums.get(id(step))
        if previous is None:
            array = self._assign(self._zeros(step))
        elif previous.is_ours and type(values[previous.name]) is np.ndarray:
            array = self._full(previous.name, step)
        else:
            array = self._assign(f"np.asarray({self._zeros(step)} + {previous.name})")
        self._sums[id(step)] = Sum(array, True)
        part = values[array][eval(piece.where, values)]
        if not piece.distinct:
            text = f"np.add.at({array}, {piece.where}, {piece.text})"
        elif isinstance(part, np.ndarray) and part.base is values[array]:
            text = f"np.add(part := {array}[{piece.where}], {piece.text}, part)"
        else:
            text = f"{array}[{piece.where}] = {array}[{piece.where}] + {piece.text}"
        self.lines.append(self._writer.run(array, text))


def spelled(dtype: np.dtype) -> str:
    """A dtype in a program; in another byte order than the machine's it has no name."""
    return f"np.{dtype}" if dtype.isnative else repr(dtype.str)
