"""Boxes: traced arrays in a model; the methods they lack, boxes that were kept, hints.

``a += b`` of a traced array that somebody else holds is an error. With autograd's boxes it is
``a = a + b``, but NumPy would change the array under its other names and views. So the box of an
array knows the boxes of arrays that share its memory.

Methods of arrays work if a traced function does the same; the others tell what to write.

Questions about its type have the answer of the array or number within: a model takes the branch
that it takes without derivatives.
"""

import _collections_abc
import itertools
import sys
import traceback
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import dropwhile, takewhile
from types import FrameType, FunctionType
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import tracer
from autograd.builtins import SequenceBox
from autograd.numpy import numpy_boxes
from autograd.tracer import box_type_mappings, box_types, isbox

from daskgrad.autodiff.rules.declaration import NUMPYS
from daskgrad.autodiff.tape.scipy_hints import advice_about_scipy
from daskgrad.autodiff.values.protection import BARE
from daskgrad.autodiff.values.trees import LEAF_TYPES, held_by

# -------------------------------------------------------------------------------------------------
# Thread-safe trace numbers for autograd.
#
# autograd raises one counter when a trace starts and lowers it when it ends. With two threads a
# number is handed out twice, and a nested derivative is wrong without an error. Numbers that only
# grow cannot meet, also where a closure carries a box into another thread.
#
# Here and in ``numpy_calls`` daskgrad replaces parts of another library, when it is imported, in
# every process.


class TraceNumbers:
    """Hands out every number once; stands where autograd keeps its ``TraceStack``."""

    def __init__(self, first: int):
        self._numbers = itertools.count(first)

    def next_number(self) -> int:
        return next(self._numbers)  # one C call: atomic under the interpreter lock

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        yield self.next_number()


trace_numbers = TraceNumbers(tracer.trace_stack.top + 1)
tracer.trace_stack = trace_numbers  # makes autograd's traces safe in threads


# -------------------------------------------------------------------------------------------------
# Kinds of numbers: real, complex, and without derivative.

INTEGERS = frozenset("biu")  # a cast to them, or to booleans, is constant between its jumps


def kind_of(value: Any) -> str:
    """The kind of a value's dtype: "f" for real, "c" for complex ones; "" for a container."""
    if type(value) is np.float64 or type(value) is float:  # NumPy's dtype takes three times as long
        return "f"
    try:
        return value.dtype.kind
    except AttributeError:
        return "c" if isinstance(value, complex) else ""


def real_part(derivative: Any) -> Any:
    """The real part for a real value; some rules of autograd's forget that the value is real."""
    return anp.real(derivative) if kind_of(derivative) == "c" else derivative


def integer_pullback(g: Any) -> tuple:
    """The pullback of a result without derivative; autograd's rules for casts pass ``g`` on."""
    return ()


# -------------------------------------------------------------------------------------------------
# Kept values: a model that keeps a traced value for its next call gets an error.
#
# A box of a trace that has ended has no place in another one: its derivative would be zero without
# a word, or a result would hold the box.

TRACERS = ("daskgrad", "autograd")
LIBRARIES = ("numpy", "scipy", "pandas", "xarray")
SEEING_BOXES = (*TRACERS, *LIBRARIES[1:])  # whatever types the values have
INNER = frozenset((*TRACERS, *LIBRARIES))  # packages whose frames are none of the user's


live: dict[int, Any] = {}  # the operands of traces that have not ended, by the numbers of these


class KeptValueError(TypeError):
    """A model used a traced value that an earlier call has kept."""


def kept_value_error(subject: str) -> KeptValueError:
    return KeptValueError(
        f"{subject}, {place_in_model()}, uses a traced value (an ArrayBox) that was kept from an "
        f"earlier call, in an object, a global or a dictionary; its derivative is lost. Compute "
        f"it in each call, keep plain arrays (dg.value(x)) that no derivative goes through, or "
        f"give what is kept a rule of its own (dg.custom_vjp)"
    )


def require_live(output: Any, subject: str) -> None:
    """Raises if a box is one of a trace that has ended."""
    trace = getattr(output._node, "trace", None)
    if trace is not None and trace not in live:
        raise kept_value_error(subject)


def place_in_model() -> str:
    """The file and line that a model has got to."""
    place = place_here()
    return "in NumPy" if place is None else f"in {place[0]}:{place[1]}"


def place_here() -> tuple[str, int] | None:
    frame: Any = sys._getframe(1)
    while frame is not None and package_of(frame) in INNER:
        frame = frame.f_back
    return None if frame is None else place_of(frame)


def place_of(frame: Any, line: int | None = None) -> tuple[str, int] | None:
    """The file and line of a frame, unless it is the tracer's or a library's."""
    if package_of(frame) in INNER:
        return None
    return frame.f_code.co_filename, line or frame.f_lineno


def package_of(frame: Any) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


# -------------------------------------------------------------------------------------------------
# Hints: advice for errors of models that are not written for autograd.
#
# No user of plain NumPy, SciPy, pandas or xarray can read their errors about a box. So the frames
# between the model and the error tell which function got a traced value.

NESTED = "inside a model, take derivatives of plain functions with autograd.grad, not dg.grad"
HINT = (
    "while it is differentiated, a model sees autograd's boxes instead of arrays. Functions of "
    "numpy and scipy.special take them; use these instead of math, and daskgrad.scipy instead of "
    "the rest of scipy (for example daskgrad.scipy.linalg; give other functions a rule with "
    f"dg.custom_vjp). Make new arrays (np.concatenate, np.where) instead of assigning into one; "
    f"{NESTED}"
)

ARRAY = (
    "no plain array holds traced numbers; write np.stack([...]) of a list for np.array([...]), "
    "np.fromiter and result[i] = ..., np.dot(a, x) for a.dot(x), and x.astype(float) for "
    "np.asarray(x, float)"
)
NUMBER = (
    "a plain number has no derivative; leave out float(), since x[0] is a number, write np.exp "
    "for math.exp and np.stack([...]) for np.fromiter, or dg.value(x) for a number without "
    "derivative"
)
TEXT = "text has no derivative; for a line to print write dg.value(x)"
ASSIGNMENT = (
    "a traced array stays as it is; choose with np.where or join with np.concatenate instead of "
    "x[i] = ..."
)

COMPILED = (
    "a compiled function takes plain arrays alone; for scipy.sparse.linalg's splu(A).solve(b) and "
    "spsolve(A, b) write daskgrad.scipy.sparse.linalg's"
)

BOX_SIGNS = {  # in messages of plain NumPy and SciPy about a box, or an array of boxes: advice
    "array element with a sequence": ARRAY,
    "loop of ufunc does not support": ARRAY,
    "__format__": TEXT,
    "item assignment": ASSIGNMENT,
    "float() argument": NUMBER,
    "JSON serializable": NUMBER,
    "int() argument": NUMBER,
    "complex() first argument": NUMBER,
    "must be real number": NUMBER,
    "must be numpy.ndarray": COMPILED,
    "ArrayBox": "",
    "NumberBox": "",
    "dtype('O')": ARRAY,
    "dtype object": ARRAY,
    "object arrays": ARRAY,
    "proper array of floats": "",
    "holds references": "",
    "found object": "",
    "not supported for the input types": "",
    "unsupported data types in input": "",
    "Can't differentiate w.r.t. type": "",
}

METHODS = {  # that look into a box: advice
    "__array__": ARRAY,
    "__float__": NUMBER,
    "__int__": NUMBER,
    "__complex__": NUMBER,
    "__index__": NUMBER,
    "__str__": TEXT,
    "__repr__": TEXT,
    "__format__": TEXT,
    "__setitem__": ASSIGNMENT,
}

ADVICE = {  # by a package, module or class that takes no traced values
    "pandas": (
        "pandas takes no traced values; take arrays out of Series and DataFrames first, with "
        ".to_numpy(), and compute with these"
    ),
    "xarray": (
        "xarray takes no traced values; take arrays out of DataArrays first, with .values or "
        ".data, and compute with these"
    ),
    "polynomial": (
        "np.polynomial's functions take no traced values here; write chebvander(t, n) @ c for a "
        "value (or polyvander, legvander ...), np.linalg.lstsq(chebvander(t, n), y)[0] for a fit"
    ),
    "ma": (
        "masked arrays (np.ma) hold no traced values; choose with np.where(mask, x, ...), of "
        "plain arrays"
    ),
    "vectorize": (
        "np.vectorize takes no traced values; call NumPy's functions of the whole array, or write "
        "np.stack([fun(u) for u in x])"
    ),
}


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error of plain NumPy on a box; boxes exist only while tracing."""
    if stage != "forward":
        return None
    is_known = any([sign in str(error) for sign in BOX_SIGNS])
    if not is_known and not any(map(has_box, library_frames(frames_of(error)))):
        return None
    advice = advice_about(error)
    return f"{advice}. {HINT[0].upper()}{HINT[1:]}" if advice else HINT


def advice_about(error: Exception) -> str:
    """Advice for an error about a box, or nothing."""
    signs = [advice for sign, advice in BOX_SIGNS.items() if advice and sign in str(error)]
    return advice_of(frames_of(error)) or "".join(signs[:1])


def advice_here(method: str = "") -> str:
    """Advice for code that looks into a box now, by a method of the box."""
    return advice_of(libraries_here()) or METHODS.get(method, "")


def libraries_here() -> list[FrameType]:
    """The frames of the library that looks into a box or node now, the innermost first."""
    return library_frames(frame for frame, _ in traceback.walk_stack(sys._getframe(1)))[::-1]


def frames_of(error: Exception) -> list[FrameType]:
    """The frames of a traceback, the innermost first."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]


def library_frames(frames: Iterable[FrameType]) -> list[FrameType]:
    """The frames of the library that met a box, the outermost first."""
    outside = dropwhile(lambda frame: package_of(frame) in TRACERS, frames)
    return list(takewhile(lambda frame: package_of(frame) in LIBRARIES, outside))[::-1]


def has_box(frame: FrameType) -> bool:
    """Whether a function got, or has made, a box or an array of boxes."""
    return any(map(is_traced, frame.f_locals.values()))


def is_traced(value: Any, depth: int = 3) -> bool:
    """Whether a value is a box, an array of boxes, or a tuple or function that holds one, perhaps
    in another."""
    if isinstance(value, FunctionType | tuple):
        held = value if isinstance(value, tuple) else held_by(value)
        return depth > 0 and any([is_traced(part, depth - 1) for part in held])
    return isbox(value) or (isinstance(value, np.ndarray) and value.dtype.kind == "O")


def advice_of(frames: Iterable[FrameType]) -> str:
    """The advice to a call of a library, or nothing."""
    frames = list(frames)
    called = [
        (*frame.f_globals["__name__"].split("."), frame.f_code.co_qualname.split(".")[0])
        for frame in library_frames(frames)
    ]
    for package, *names in called:
        for name in (package, *names):
            if name in ADVICE:
                return ADVICE[name]
    return advice_about_scipy(library_frames(frames))


# ------------------------------------------------------------------------------------- array boxes

Autograds: Any = numpy_boxes.ArrayBox
CALL = anp.sin.__code__  # autograd's wrapper of each primitive


BASES = type.__dict__["__mro__"].__get__
OF_ABSTRACT = vars(_collections_abc)["_check_methods"].__code__


class AnsweringType(type):
    """The type of classes whose objects stand for values. Abstract classes (``Sized``,
    ``Iterable``, ``Hashable``) look for methods in their bases; they find none, and so answer by
    ``__class__`` alone."""

    @property
    def __mro__(cls) -> tuple[type, ...]:
        is_abstract = sys._getframe(1).f_code is OF_ABSTRACT
        return () if is_abstract else BASES(cls)


def asked_class(box: Any) -> type:
    """The type of the value in a box, for ``isinstance``; the tracer's code sees a box, and so does
    SciPy's, whose sparse matrices leave operands that are no arrays to these."""
    frame: Any = sys._getframe(1)
    while (package := package_of(frame)) in ("numpy", "abc"):  # on behalf of others
        frame = frame.f_back
    return type(box) if package in SEEING_BOXES else box.class_of_value()


class ContainerBox(SequenceBox, metaclass=AnsweringType):
    """The box of a list or tuple, which a function returns."""

    __slots__ = ()

    __class__ = property(asked_class)

    def class_of_value(self) -> type:
        value = self._value
        return value.class_of_value() if isinstance(value, ContainerBox) else type(value)

    def __getattr__(self, name: str) -> Any:
        """The field of a named tuple."""
        fields = getattr(self.class_of_value(), "_fields", ())
        if name not in fields:
            raise AttributeError(f"'ContainerBox' object has no attribute {name!r}")
        return self[fields.index(name)]


class ArrayBox(Autograds, metaclass=AnsweringType):
    """The box of an array. ``sharing``: weak references to boxes of arrays with the same memory."""

    __slots__ = ("__weakref__", "sharing")

    __class__ = property(asked_class)

    def class_of_value(self) -> type:
        value: Any = inmost(self)
        is_recorded = hasattr(type(value), "class_of_value")
        return value.class_of_value() if is_recorded else type(value)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """As an object of its own class; pickle would ask for the value's."""
        _, _, *state = super().__reduce_ex__(protocol)
        return object.__new__, (type(self),), *state

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError(f"a traced number (an ArrayBox) is not iterable, {place_in_model()}")
        return (self[number] for number in range(len(self)))

    def __init__(self, value: Any, trace: int, node: Any):
        self._value = value  # type: ignore[misc]
        self._trace = trace  # type: ignore[misc]
        self._node = node  # type: ignore[misc]
        self.sharing: list[weakref.ref] | None = None
        while type(value) is ArrayBox:
            value = value._value
        if type(value) is np.ndarray and value.base is not None:
            note_view(self, value)


class NumberBox(ArrayBox):
    """The box of a Python float or complex number, which stays Python's in Python's arithmetic."""

    __slots__ = ()


TAPE_BOXES = frozenset((ArrayBox, NumberBox))


def inmost(value: Any) -> Any:
    """The array or number in a box, through all traces but one that is recorded."""
    while type(value) is ArrayBox or type(value) is NumberBox:
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
        inner = inmost(parent)
        if inner is not parent and (inner is owner or getattr(inner, "base", None) is owner):
            if parent.sharing is None:
                parent.sharing = [weakref.ref(parent)]
            view.sharing = parent.sharing
            view.sharing.append(weakref.ref(view))
            return


# the modules between a call and its box
KNOWN = {"autograd.tracer", "daskgrad.autodiff.programs.boxes", __name__}


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


def is_log() -> bool:
    """Whether ``logging`` asks for a value: it swallows exceptions, and prints their tracebacks."""
    return package_of(sys._getframe(2)) == "logging"


def shown(name: str, refusal: str = "") -> Any:
    """A method that gives the plain value to logs; to others a refusal, or autograd's text."""
    autograds = getattr(Autograds, name, None)

    def method(box: Any) -> Any:
        if is_log():
            return getattr(inmost(box), name)()
        if autograds is None:
            raise TypeError(refusal)
        return autograds(box)

    return method


def rounded(box: Any, ndigits: int | None = None) -> Any:
    """``round`` of a traced number of NumPy's; its arrays have none."""
    if box.ndim or ndigits is None:
        raise TypeError(
            f"round() of a traced array (an ArrayBox), {place_in_model()}: write np.round(x), or "
            f"round(dg.value(x)) for an integer; both have no derivative"
        )
    return anp.around(box, ndigits)


ARRAY_METHODS = {
    "dot": anp.dot,
    "conj": anp.conj,
    "conjugate": anp.conj,
    "copy": lambda box, order="C": np.copy(box, order),
    "clip": lambda box, min=None, max=None: anp.clip(box, min, max),
    "compress": lambda box, condition, axis=None: np.compress(condition, box, axis),
    "transpose": lambda box, *axes: anp.transpose(box, axes if len(axes) > 1 else (*axes, None)[0]),
    "__pos__": anp.array,
    "__floordiv__": anp.floor_divide,
    "__rfloordiv__": lambda box, other: anp.floor_divide(other, box),
    "__divmod__": lambda box, other: (anp.floor_divide(box, other), box % other),
    "__rdivmod__": lambda box, other: (anp.floor_divide(other, box), other % box),
    "__round__": lambda box, *digits: rounded(box, *digits),
    "__float__": shown("__float__", "float() argument must be a real number, not 'ArrayBox'"),
    "__int__": shown("__int__", "int() argument must be a real number, not 'ArrayBox'"),
    "__str__": shown("__str__"),
    "item": item_of,
    "real": property(anp.real),
    "imag": property(anp.imag),
    "mT": property(lambda box: anp.swapaxes(box, -1, -2)),
}


INSTEAD = {"flat": "np.ravel(x), or ", "tolist": "list(x), or "}  # of attributes that boxes lack


def missing(name: str) -> property:
    """An attribute that boxes lack. The error tells what to write; for ``getattr`` with another
    value it is no AttributeError, since an array has the attribute."""

    def refuse(box: Any) -> Any:
        if type(box) not in TAPE_BOXES or not hasattr(box.class_of_value(), name):
            raise AttributeError(name)
        instead = f"np.{name}(x), or " if callable(getattr(np, name, None)) else ""
        instead = INSTEAD.get(name, instead)
        raise TypeError(
            f"'ArrayBox' object has no attribute {name!r}: a traced array has not all of an "
            f"array's; write {instead}dg.value(x).{name}, which has no derivative"
        )

    return property(refuse)


# functions of pandas that take a traced array for one Python object, or warn of it
SERIES = ("Series.__init__", "sanitize_array", "maybe_warn_listlike")


def series_type(box: Any) -> Any:
    """pandas reads this attribute of an operand, and of an object that goes into a column."""
    frame: Any = sys._getframe(1)
    while box.ndim and package_of(frame) == "pandas":
        if frame.f_code.co_qualname in SERIES:
            raise TypeError(f"a traced array (an ArrayBox), {place_in_model()}: {ADVICE['pandas']}")
        frame = frame.f_back
    raise AttributeError("_typ")


def install_array_boxes() -> None:
    """Has the tracer make boxes of this kind for arrays."""
    for name, method in ARRAY_METHODS.items():
        setattr(Autograds, name, method)
    for name in {*dir(np.ndarray), *dir(np.float64)}:
        if not (name.startswith("_") or hasattr(ArrayBox, name)):
            setattr(ArrayBox, name, missing(name))
    ArrayBox._typ = property(series_type)
    for name, symbol in OPERATORS.items():
        setattr(ArrayBox, f"__i{name}__", in_place(symbol))
    for kind, boxes in list(box_type_mappings.items()):
        if boxes is Autograds:
            box_type_mappings[kind] = NumberBox if kind in (float, complex) else ArrayBox
        if boxes is SequenceBox:
            box_type_mappings[kind] = ContainerBox
    for own in (ArrayBox, NumberBox, ContainerBox):
        box_type_mappings[own] = own
        box_types.add(own)
    LEAF_TYPES.update(TAPE_BOXES)
    BARE.update(TAPE_BOXES)
    NUMPYS.add(ArrayBox)
    numpy_boxes.ArrayBox = ArrayBox  # the tracer looks for it among operands
    Autograds.__module__, Autograds.__qualname__ = __name__, "Autograds"  # where pickles find it
