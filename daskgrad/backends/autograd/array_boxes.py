"""Array boxes: what NumPy's arrays have and autograd's boxes lack.

``a += b`` of a traced array that somebody else holds is an error: for autograd's boxes it is
``a = a + b``. NumPy changes the array, and with it what another name or a view shows. So the box of
an array knows the boxes of arrays that share its memory.

Methods of arrays work where a traced function does the same; the others say what to write.
"""

import sys
import weakref
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import numpy_boxes
from autograd.tracer import box_type_mappings, box_types

from daskgrad.backends.autograd.hints import ADVICE
from daskgrad.backends.autograd.kept_values import package_of, place_in_model
from daskgrad.values.protection import BARE
from daskgrad.values.trees import LEAF_TYPES

Autograds: Any = numpy_boxes.ArrayBox
CALL = anp.sin.__code__  # autograd's wrapper of each primitive


class ArrayBox(Autograds):
    """The box of an array. ``sharing``: weak references to boxes of arrays with the same memory."""

    __slots__ = ("__weakref__", "sharing")

    def __init__(self, value: Any, trace: int, node: Any):
        self._value = value  # type: ignore[misc]
        self._trace = trace  # type: ignore[misc]
        self._node = node  # type: ignore[misc]
        self.sharing: list[weakref.ref] | None = None
        while type(value) is ArrayBox:
            value = value._value
        if type(value) is np.ndarray and value.base is not None:
            note_view(self, value)


def inmost(value: Any) -> Any:
    """The array or number in a box, through all traces but one that is recorded."""
    while type(value) is ArrayBox:
        value = value._value
    return value


def note_view(view: ArrayBox, array: np.ndarray) -> None:
    """Enters a box among the boxes that share its memory, if a call made it of one of these."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code is not CALL:
        if frame.f_globals.get("__name__") not in KNOWN:
            return
        frame = frame.f_back
    owner = array.base
    for parent in () if frame is None else frame.f_locals["args"]:
        inner = parent
        while type(inner) is ArrayBox:
            inner = inner._value
        if inner is not parent and (inner is owner or getattr(inner, "base", None) is owner):
            if parent.sharing is None:
                parent.sharing = [weakref.ref(parent)]
            view.sharing = parent.sharing
            view.sharing.append(weakref.ref(view))
            return


KNOWN = {"autograd.tracer", "daskgrad.compiled.boxes", __name__}  # between a call and its box


def is_shared(box: ArrayBox) -> bool:
    """Whether another box that is alive has an entry of the array."""
    if box.sharing is None:
        return False
    others = [other for ref in box.sharing if (other := ref()) is not None and other is not box]
    box.sharing[:] = [weakref.ref(other) for other in (box, *others)]
    return any([np.shares_memory(inmost(other), inmost(box)) for other in others])


def in_place(name: str) -> Any:
    def operator(self: ArrayBox, other: Any) -> Any:
        """NotImplemented, so that Python calls the operator that makes a new array."""
        if type(inmost(self)) is np.ndarray and (sys.getrefcount(self) > ALONE or is_shared(self)):
            raise TypeError(
                f"{name} changes a traced array (an ArrayBox) in place, {place_in_model()}, which "
                f"another name or a view shows, too; a trace cannot record that. Write a = a "
                f"{name.rstrip('=')} b for a new array, and make views of that, or put parts "
                f"together with np.concatenate or np.where"
            )
        return NotImplemented

    return operator


OPERATORS = {
    "add": "+=",
    "sub": "-=",
    "mul": "*=",
    "truediv": "/=",
    "floordiv": "//=",
    "mod": "%=",
    "pow": "**=",
    "matmul": "@=",
}


class Probe:
    """Counts the references to something that is changed in place and has one holder."""

    def __iadd__(self, other: Any) -> "Probe":
        self.count = sys.getrefcount(self)
        return self


def references_to_one() -> int:
    """While ``a += b`` runs, and ``a`` is a local name, an attribute or an entry."""
    local, holder = Probe(), [Probe()]
    local += 1
    holder[0] += 1
    return max(local.count, holder[0].count)


ALONE = references_to_one()


def item_of(box: Any, *index: Any) -> Any:
    """The entry of an array, as a traced number: the only one, or one in flat or full indices."""
    if not index:
        return anp.reshape(box, ())[()]
    return anp.ravel(box)[index[0]] if len(index) == 1 else box[index]


def copy_of(box: Any, order: Any = "C") -> Any:
    return np.copy(box, order)


METHODS = {
    "dot": anp.dot,
    "conj": anp.conj,
    "conjugate": anp.conj,
    "copy": copy_of,
    "item": item_of,
    "real": property(anp.real),
    "imag": property(anp.imag),
    "mT": property(lambda box: anp.swapaxes(box, -1, -2)),
}


def missing(name: str) -> property:
    """An attribute of arrays that boxes lack, which says what to write."""

    def refuse(box: Any) -> Any:
        instead = f"np.{name}(x), or " if callable(getattr(np, name, None)) else ""
        raise AttributeError(
            f"'ArrayBox' object has no attribute {name!r}: a traced array has not all of an "
            f"array's; write {instead}dg.value(x).{name}, which has no derivative"
        )

    return property(refuse)


SERIES = ("Series.__init__", "sanitize_array")  # which take a traced array for one Python object


def series_type(box: Any) -> Any:
    """pandas reads this attribute of an operand, and of an object that goes into a column."""
    frame: Any = sys._getframe(1)
    while box.ndim and package_of(frame) == "pandas":
        if frame.f_code.co_qualname in SERIES:
            raise TypeError(f"a traced array (an ArrayBox), {place_in_model()}: {ADVICE['pandas']}")
        frame = frame.f_back
    raise AttributeError("_typ")


def install() -> None:
    """Has the tracer make boxes of this kind for arrays."""
    for name, method in METHODS.items():
        setattr(Autograds, name, method)
    for name in dir(np.ndarray):
        if not (name.startswith("_") or hasattr(ArrayBox, name)):
            setattr(ArrayBox, name, missing(name))
    ArrayBox._typ = property(series_type)
    for name, symbol in OPERATORS.items():
        setattr(ArrayBox, f"__i{name}__", in_place(symbol))
    for kind, boxes in list(box_type_mappings.items()):
        if boxes is Autograds:
            box_type_mappings[kind] = ArrayBox
    box_type_mappings[ArrayBox] = ArrayBox
    box_types.add(ArrayBox)
    LEAF_TYPES.add(ArrayBox)
    BARE.add(ArrayBox)
    numpy_boxes.ArrayBox = ArrayBox  # the tracer looks for it among operands
    Autograds.__module__, Autograds.__qualname__ = __name__, "Autograds"  # where pickles find it
