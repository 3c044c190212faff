"""Boxes: a model gets them in place of arrays and numbers while it is recorded.

A ``RecordingBox`` takes part in all that autograd's boxes do, and each of its calls becomes a
``RecordedCall``. Its value is for the recorder alone: code may ask for shape and dtype, since
programs are made for these; whether it is true becomes a guard; all else that looks at the number
ends the recording. autograd makes the boxes of a trace by the type of the value; ``install``
enters factories there that choose the kind of box by the node.
"""

import copy
import operator
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.builtins import DictBox, SequenceBox, container_take
from autograd.core import SparseBox, VSpace, sparse_add, sparse_object_types, vspace
from autograd.tracer import (
    Box,
    Node,
    box_type_mappings,
    box_types,
    getval,
    isbox,
    notrace_primitives,
)

from daskgrad.autodiff.rules.declaration import ArrayBox
from daskgrad.autodiff.rules.indexing import add_at
from daskgrad.autodiff.rules.manipulation import places_of
from daskgrad.autodiff.tape import boxes as array_boxes
from daskgrad.autodiff.tape import rule_calls
from daskgrad.autodiff.tape.boxes import advice_here, place_here, place_in_model, trace_numbers
from daskgrad.autodiff.tape.forward import require_array, tangent_of
from daskgrad.autodiff.tape.numpy_calls import OF_MEMORY, call_function, call_ufunc
from daskgrad.autodiff.tape.operands import Copies
from daskgrad.autodiff.tape.reverse import add_in_place
from daskgrad.autodiff.values.protection import BARE, read_only_leaf
from daskgrad.autodiff.values.trees import BOXES

PYTHONS = (bool, int, float, complex)


HANDLED = frozenset(["raise", "call", "log", "print"])  # floating-point errors


class Unrecordable(Exception):
    """A model did something that no list of calls can repeat; the message names it and its line."""


class NotYet(Unrecordable):
    """These calls took too long, perhaps since the machine is busy, or another thread records one:
    later ones are recorded."""


class RecordedCall(Node):
    """One call, or an input (then ``fun`` is None)."""

    __slots__ = ("args", "fun", "kwargs", "place", "recording", "value")

    def __init__(
        self,
        value: Any,
        fun: Any,
        args: Sequence[Any],
        kwargs: dict,
        argnums: Sequence[int],
        calls: Sequence["RecordedCall"],
    ):
        """A call that the tracer saw; ``calls`` made the boxes at ``argnums``."""
        recording = calls[0].recording
        before = recording.open_calls.pop(sys._getframe(1), None)
        mixed = list(args)
        if before is not None:  # the call has changed this argument in place
            mixed[1] = before
        for argnum, call in zip(argnums, calls, strict=True):
            mixed[argnum] = call
        self._set(recording, value, fun, mixed, kwargs)

    def _set(
        self, recording: "Recording", value: Any, fun: Any, args: Sequence[Any], kwargs: dict
    ) -> None:
        self.recording, self.value, self.fun = recording, value, fun
        self.args, self.kwargs = tuple(args), kwargs
        self.place = recording.place
        if not recording.is_trusted:  # the model may change constants
            self.args, self.kwargs = recording.operands.of((self.args, kwargs))
            self.place = place_here()
        if fun is not None:
            recording.calls.append(self)

    @classmethod
    def of_call(cls, *parts: Any) -> "RecordedCall":
        """A call that the tracer did not see."""
        call = cls.__new__(cls)
        call._set(*parts)
        return call

    @property
    def name(self) -> str:
        return getattr(self.fun, "__name__", str(self.fun))


class Guard(NamedTuple):
    """The model asked whether a value is true."""

    call: RecordedCall
    answer: bool


class Recording:
    """The calls of one run: ``inputs``, ``calls`` (guards among them), and ``outputs``, which are
    calls or constants. ``in_models``: so many of them belong to models with programs of their own;
    ``is_trusted``: the package's own rules run, which look at no number."""

    def __init__(self) -> None:
        self.number = trace_numbers.next_number()
        self.inputs: list[RecordedCall] = []
        self.calls: list[RecordedCall | Guard] = []
        self.outputs: list[Any] = []
        self.in_models = 0
        self._counted = self._nbytes = 0  # calls, and the bytes of their values
        self.refusal: Unrecordable | None = None
        self.is_trusted = False
        self.place: Any = None  # file and line of the model while the package's rules run
        self.taken_out: list[Any] = []  # boxes that the model takes for plain numbers
        self.open_calls: dict[Any, Any] = {}  # frames of calls that have not returned
        self.operands = Copies()
        self._filters = warnings.filters

    def release(self) -> None:
        """Lets go of the calls: they know their recording, and the garbage collector would have to
        find them."""
        self.open_calls.clear()
        self.refusal = None  # its traceback knows the recording
        for calls in (self.inputs, self.calls, self.outputs, self.taken_out):
            calls.clear()

    def size(self) -> tuple[int, int]:
        """The number of calls, and the bytes of their values."""
        self._nbytes += nbytes_of(self.calls[self._counted :])
        self._counted = len(self.calls)
        return self._counted, self._nbytes

    def forget(self, count: int) -> None:
        """Takes back all but the first ``count`` calls."""
        self._nbytes -= nbytes_of(self.calls[count : self._counted])
        self._counted = min(self._counted, count)
        del self.calls[count:]
        self.open_calls.clear()
        self.refusal = None

    def refuse(self, reason: str, method: str = "") -> Unrecordable:
        """The error that ends the recording; it is kept, since the model may catch it.

        ``method``: of a box, that was called."""
        if self.refusal is None:
            advice = advice_here(method)
            message = f"{reason}, {place_in_model()}"
            self.refusal = Unrecordable(f"{message}; {advice}" if advice else message)
        return self.refusal

    def require_no_handlers(self) -> None:
        """Raises if the model does something about floating-point errors, which are silent while
        it is recorded."""
        if not HANDLED.isdisjoint(np.geterr().values()):
            raise self.refuse("the model handles floating-point errors")
        if warnings.filters is not self._filters and warnings.filters[0][:2] != ("ignore", None):
            raise self.refuse("the model handles warnings")


def nbytes_of(calls: Sequence[RecordedCall | Guard]) -> int:
    return sum([getattr(call.value, "nbytes", 0) for call in calls if type(call) is RecordedCall])


# --------------------------------------------------------------------------------------- boxes


GETITEM: Any = ArrayBox.__getitem__  # autograd's primitive
HIDDEN = Box.__dict__["_value"]  # the slot under the property of this name
set_value, set_trace, set_node = [
    Box.__dict__[name].__set__ for name in ("_value", "_trace", "_node")
]
BY_PRIMITIVES = anp.sin.__code__  # autograd's wrapper that records calls
BY_CONSTANTS = anp.shape.__code__  # autograd's wrapper that does not
STATIC: set[Any] = {np.ndim, np.shape, np.size, np.iscomplexobj, np.isrealobj, np.result_type}
STATIC |= {type, isinstance}
OF_LAYOUT = {"flags", "nbytes", "base", "strides", "itemsize"}
LOOKS: set[Any] = {ArrayBox.__len__.__code__, SequenceBox.__len__.__code__}
LOOKS |= {DictBox.__len__.__code__, DictBox.__iter__.__code__}
TYPED = {tangent_of, require_array, places_of, rule_calls.shape_of, rule_calls.fit, vspace}
TYPED |= {rule_calls.with_derivative, rule_calls.unbox_container}
TYPED_CODES = {fun.__code__ for fun in TYPED}  # which want shape or dtype of a box's value
IN_PLACE = {VSpace.mut_add, sparse_add}  # they change their second argument


def reader(frame: Any) -> Any:
    """The frame of the function that looks into a box."""
    if frame.f_code.co_name == "<listcomp>":  # a frame of its own before Python 3.12
        return frame.f_back
    return frame


def looks_at_shape(frame: Any) -> bool:
    """Whether the code that looks into a box records a call, or wants shape or dtype alone."""
    code = frame.f_code
    if code is BY_PRIMITIVES or code in LOOKS:
        return True
    if code is not getval.__code__:
        return False
    while frame.f_code is code:  # once for each trace
        frame = frame.f_back
    caller = reader(frame)
    if caller.f_code is BY_CONSTANTS:
        fun = caller.f_locals["f_raw"]
        return fun in STATIC or fun.__name__ in ("metadata", "parse_einsum_input")
    return caller.f_code in TYPED_CODES


UNRECORDED = {anp.size, anp.isscalar, anp.isrealobj}


class Hiding(Box):
    """The part of a recording box that hides its value."""

    __slots__ = ()

    def __init__(self, value: Any, number: int, call: RecordedCall):
        set_value(self, value)
        set_trace(self, number)
        set_node(self, call)

    @property
    def _value(self) -> Any:
        recording = self._node.recording
        if recording.is_trusted:
            return HIDDEN.__get__(self)
        frame = reader(sys._getframe(1))
        if frame.f_code is not BY_PRIMITIVES and not looks_at_shape(frame):
            raise self.refusal("the model takes the number out of a traced value")
        if frame not in recording.open_calls:  # of which another argument was taken
            recording.require_no_handlers()
            if frame.f_code is BY_PRIMITIVES:
                if may_fail(frame.f_locals):
                    recording.open_calls[frame] = changed_by(frame.f_locals)
        return HIDDEN.__get__(self)

    def refusal(self, reason: str, method: str = "") -> Exception:
        return self._node.recording.refuse(reason, method)


def may_fail(call: dict[str, Any]) -> bool:
    """Whether a call may raise an exception for some data; the one that ends an iterator tells its
    length alone."""
    fun = call["f_wrapped"]
    if fun is GETITEM:
        return type(call["args"][1]) is not int
    return fun not in UNRECORDED and fun is not container_take


def changed_by(call: dict[str, Any]) -> Any:
    """A copy of the constant that a call is about to change in place, or None."""
    if call["f_wrapped"] not in IN_PLACE:
        return None
    argument = call["args"][1]
    return None if isbox(argument) else copy.deepcopy(argument)


class RecordingSequence(Hiding, array_boxes.ContainerBox):
    """The several arrays that a function returned; a call takes each one out."""

    __slots__ = ()

    def class_of_value(self) -> type:
        return type(HIDDEN.__get__(self))

    def __iter__(self) -> Any:
        return iter([self[number] for number in range(len(self))])

    def plain(self) -> Any:
        parts = [box.plain() for box in self]
        return parts if isinstance(HIDDEN.__get__(self), list) else tuple(parts)

    def unboxed(self) -> Any:
        parts = [box.unboxed() for box in self]
        return parts if isinstance(HIDDEN.__get__(self), list) else tuple(parts)


class RecordingDict(Hiding, DictBox):
    """The arrays of a dict; a call takes each one out."""

    __slots__ = ()


class RecordingSparse(Hiding, SparseBox):
    """The cotangent of an indexed array or container, as autograd keeps it."""

    __slots__ = ()


class RecordingBox(Hiding, ArrayBox, metaclass=array_boxes.AnsweringType):
    """A box whose calls are recorded, and whose value is for the recorder alone."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The type of the array or number, for ``isinstance``; for the package's rules, too."""
        return type(HIDDEN.__get__(self))

    def class_of_value(self) -> type:
        return type(HIDDEN.__get__(self))

    shape = property(lambda self: np.shape(HIDDEN.__get__(self)))
    ndim = property(lambda self: np.ndim(HIDDEN.__get__(self)))
    size = property(lambda self: np.size(HIDDEN.__get__(self)))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an array in its byte order; autograd tells the machine's."""
        value = HIDDEN.__get__(self)
        return value.dtype if isinstance(value, np.ndarray) else np.result_type(value)

    @property
    def recorded(self) -> Any:
        """The value of this run, for the package's rules that ask for its kind."""
        return HIDDEN.__get__(self)

    def record_call(self, fun: Any, args: tuple, objects: int = 0) -> Any:
        """A call of any function; the first ``objects`` of several values may be anything."""
        return call_of_data(fun, args, {}, objects)

    def plain(self) -> "RecordingBox":
        return self

    def read_only(self) -> "RecordingBox":
        """A box of a read-only view of the value."""
        value = HIDDEN.__get__(self).view()
        value.setflags(write=False)
        return RecordingBox(value, self._trace, self._node)

    def boxed(self, constant: Any) -> "RecordingBox":
        """A constant of this recording: calls with it are recorded."""
        call = RecordedCall.of_call(self._node.recording, constant, same, (constant,), {})
        return RecordingBox(constant, self._trace, call)

    @property
    def is_one(self) -> bool:
        """Whether it is the constant one, whatever the data."""
        call = self._node
        (constant, *_) = call.args or (None,)
        return call.fun is same and not isinstance(constant, RecordedCall) and constant == 1.0

    def unboxed(self) -> "RecordingBox":
        """The plain array or number that ``dg.value`` takes out of a trace."""
        is_array = type(HIDDEN.__get__(self)) is np.ndarray
        value = call_of_data(np.ndarray.copy if is_array else same, (self,), {})
        value._node.recording.taken_out.append(value)
        return value

    def __bool__(self) -> bool:
        answer = bool(HIDDEN.__get__(self))
        self._node.recording.calls.append(Guard(self._node, answer))
        return answer

    def __array_function__(self, fun: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        if fun in STATIC:
            return fun(*[HIDDEN.__get__(arg) if is_box(arg) else arg for arg in args], **kwargs)
        if fun in OF_MEMORY:
            raise self.refusal(f"the model calls {fun.__name__}")
        if boxes_within(kwargs.get("out", ())):
            raise self.refusal(f"the model has {fun.__name__} write into a traced array (out=)")
        if any(map(is_of_objects, args)):
            return fun(*map(entries_of, args), **kwargs)
        if are_data((args, kwargs)):
            return call_of_data(fun, args, kwargs)
        return call_function(self, fun, types, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if boxes_within(kwargs.get("out", ())):
            is_package = array_boxes.package_of(sys._getframe(1)) == "daskgrad"
            if ufunc is np.add and is_package:  # a sum of cotangents
                return call_of_data(np.add, (inputs[0].copy(), inputs[1]), {})
            raise self.refusal(f"the model has {ufunc.__name__} write into a traced array (out=)")
        if any(map(is_of_objects, inputs)):
            return getattr(ufunc, method)(*map(entries_of, inputs), **kwargs)
        if method != "__call__" and are_data((inputs, kwargs)):
            return call_of_data(getattr(ufunc, method), inputs, kwargs)
        return call_ufunc(self, ufunc, method, *inputs, **kwargs)

    def __matmul__(self, other: Any) -> Any:
        return NotImplemented if is_node(other) else super().__matmul__(other)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else ()
        if not boxes_within(parts):
            return GETITEM(self, index)
        return call_of_data(operator.getitem, (self, index), {})

    def __getattr__(self, name: str) -> Any:
        if name in OF_LAYOUT and array_boxes.package_of(sys._getframe(1)) == "daskgrad":
            return getattr(HIDDEN.__get__(self), name)
        if not name.startswith("__") and name != "tocsr":  # for which operators look
            self.refusal(f"the model uses the attribute {name!r} of a traced value")
        raise AttributeError(f"'ArrayBox' object has no attribute {name!r}")

    def __iter__(self) -> Any:
        return map(self.__getitem__, range(len(self)))  # each is taken in its turn

    def dot(self, other: Any) -> Any:
        """The method of a plain array makes an array of the boxes in ``other``."""
        if not are_data(other):
            raise self.refusal("the model calls the method dot of a plain array", "__array__")
        return np.dot(self, other)

    def item(self, *index: Any) -> Any:
        raise self.refusal("the model calls the method item of an array")

    def __hash__(self) -> int:
        raise self.refusal("the model looks for a number in a dict or set")


def is_node(operand: Any) -> bool:
    """Whether an operand is a graph's node, which has the operator."""
    return hasattr(type(operand), "__dask_graph__")


def refusing(name: str) -> Callable:
    def method(self: RecordingBox, *args: Any, **kwargs: Any) -> Any:
        reason = f"the model calls {name} of data, or of a value of dg.value"
        if array_boxes.is_log():
            self.refusal(reason)
            return getattr(HIDDEN.__get__(self), name)(*args)
        raise self.refusal(reason)  # no variable holds it: its traceback would hold the arrays

    return method


def operation(name: str, fun: Callable, is_reflected: bool = False) -> Callable:
    """An operator: Python's for data, which may have other bits, and autograd's for all else."""

    def method(self: RecordingBox, *others: Any) -> Any:
        if any(map(is_node, others)):
            return NotImplemented
        operands = (self, *others)[::-1] if is_reflected else (self, *others)
        if any(map(is_of_objects, others)):
            return fun(*map(entries_of, operands))
        if are_data(operands):
            return call_of_data(fun, operands, {})
        traced = getattr(tape_box_of(self), name, None)
        return NotImplemented if traced is None else traced(self, *others)

    return method


def tape_box_of(box: RecordingBox) -> Any:
    """The class of the tape's boxes of such a value."""
    is_python = type(HIDDEN.__get__(box)) in PYTHONS
    return array_boxes.NumberBox if is_python else array_boxes.ArrayBox


def as_on_tape(name: str) -> Callable:
    return lambda box, *args: getattr(tape_box_of(box), name)(box, *args)


def same(value: Any) -> Any:
    return value


def in_place(self: RecordingBox, other: Any) -> Any:
    """For numbers and traced arrays ``a += b`` is ``a = a + b``."""
    if sys._getframe(1).f_code is add_in_place.__code__:  # a sum of cotangents, nobody else's
        return call_of_data(operator.iadd, (self, other), {})
    if type(HIDDEN.__get__(self)) is np.ndarray:
        raise self.refusal("the model changes an array in place")
    return NotImplemented


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
LOGICAL = ("and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
for name in (*BINARY, *LOGICAL, *COMPARISONS, "neg", "pos", "abs", "invert"):
    fun = getattr(operator, f"__{name}__")
    setattr(RecordingBox, f"__{name}__", operation(f"__{name}__", fun))
for name in (*BINARY, *LOGICAL):
    fun = getattr(operator, f"__{name}__")
    setattr(RecordingBox, f"__r{name}__", operation(f"__r{name}__", fun, True))
for name in (*BINARY, *LOGICAL, "matmul"):
    setattr(RecordingBox, f"__i{name}__", in_place)
for name in ("__divmod__", "__rdivmod__", "__round__", "conjugate"):
    setattr(RecordingBox, name, as_on_tape(name))
for name in "float int complex index array str format repr reduce_ex setitem".split():
    setattr(RecordingBox, f"__{name}__", refusing(f"__{name}__"))


def getitem(array: Any, index: Any) -> Any:
    """An array in a box of the tape, at an index with recorded parts, which becomes one box."""
    if type(index) is tuple and type(array) is not RecordingBox:
        boxes = boxes_within(list(index))
        if boxes:
            recording = boxes[0]._node.recording
            value = replace_boxes(index, HIDDEN.__get__)
            refs = replace_boxes(index, lambda box: box._node)
            call = RecordedCall.of_call(recording, value, tuple, refs, {})
            index = RecordingBox(value, recording.number, call)
    return GETITEM(array, index)


def is_box(value: Any) -> bool:
    return type(value) is RecordingBox


def boxes_within(tree: Any) -> list[RecordingBox]:
    """The boxes in arguments, and in lists, tuples, dicts and slices of them."""
    if type(tree) in HIDING:
        return [tree]
    if isinstance(tree, slice):
        tree = (tree.start, tree.stop, tree.step)
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, list | tuple):
        return []
    return [box for part in tree for box in boxes_within(part)]


def are_data(tree: Any) -> bool:
    """Whether no box belongs to the tape, or to a trace of the model's own."""
    if isbox(tree):
        return is_box(tree)
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return True
    return all(map(are_data, tree))


def is_of_objects(operand: Any) -> bool:
    """Whether an operand is an array of the tape's boxes, whose entries NumPy takes one by one."""
    is_array = type(operand) is np.ndarray and operand.dtype.hasobject
    return is_array and not are_data(operand.ravel().tolist())


def entries_of(operand: Any) -> Any:
    """Data as NumPy takes it beside such an array: entry by entry."""
    if not is_box(operand):
        return operand
    entries = np.empty(operand.shape, object)
    for index in np.ndindex(operand.shape):
        entries[index] = operand[index] if index else operand
    return entries


def replace_boxes(tree: Any, by: Callable[[RecordingBox], Any]) -> Any:
    """Arguments with ``by(box)`` in the places of boxes."""
    if type(tree) in HIDING:
        return by(tree)
    if isinstance(tree, list | tuple):
        return type(tree)([replace_boxes(part, by) for part in tree])
    if isinstance(tree, dict):
        return {name: replace_boxes(part, by) for name, part in tree.items()}
    if isinstance(tree, slice) and boxes_within(tree):
        raise boxes_within(tree)[0].refusal("the bounds of a slice are traced")
    return tree


def call_of_data(fun: Callable, args: tuple, kwargs: dict, objects: int = 0) -> Any:
    """A call with boxes in any places."""
    recording = boxes_within((args, kwargs))[0]._node.recording
    if not recording.is_trusted:
        recording.require_no_handlers()
    may_write = recording.is_trusted or fun in (operator.iadd, add_at.fun)
    value_of = HIDDEN.__get__ if may_write else lambda box: read_only_leaf(HIDDEN.__get__(box))
    values, options = replace_boxes(args, value_of), replace_boxes(kwargs, value_of)
    if fun is add_at.fun and type(args[0]) is np.ndarray:  # a constant that the call changes
        args = args[0].copy(), *args[1:]
    try:
        value = fun(*values, **options)
    except Exception as error:  # which the model may catch
        raise recording.refuse(f"{fun.__name__} raises {type(error).__name__}: {error}") from error
    are_several = isinstance(value, list | tuple) and all(
        [part is None or isinstance(part, ARRAYS) for part in value[objects:]]
    )
    if not (isinstance(value, ARRAYS) or are_several):
        raise recording.refuse(f"{fun.__name__} returns {type(value).__name__}, which is no array")
    refs, ref_options = [replace_boxes(x, lambda box: box._node) for x in (args, kwargs)]
    call = RecordedCall.of_call(recording, value, fun, refs, ref_options)
    if not are_several:
        return RecordingBox(value, recording.number, call)
    parts = [part_of(call, number, part) for number, part in enumerate(value)]
    return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)


def part_of(parts: RecordedCall, number: int, value: Any) -> RecordingBox | None:
    """One of several values, as data."""
    if value is None:
        return None
    call = RecordedCall.of_call(parts.recording, value, operator.getitem, (parts, number), {})
    return RecordingBox(value, parts.recording.number, call)


# ------------------------------------------------------------------------------- in the tracer


RECORDING: dict[Any, type] = {
    array_boxes.ArrayBox: RecordingBox,
    array_boxes.NumberBox: RecordingBox,
    array_boxes.ContainerBox: RecordingSequence,
    DictBox: RecordingDict,
    SparseBox: RecordingSparse,
}
HIDING = set(RECORDING.values())
ARRAYS = (np.ndarray, np.generic, *PYTHONS)
BARE.add(RecordingBox)
BOXES.add(RecordingBox)
INTEGERS = (bool, int, np.bool_, *[np.dtype(code).type for code in "bBhHiIlLqQ"])


def install() -> None:
    """Has the tracer make boxes of this kind for calls; once in a process."""
    if RecordingBox not in box_types:
        with _installing:
            if RecordingBox not in box_types:
                enter_factories()


_installing = threading.Lock()


def enter_factories() -> None:
    for kind, make in list(box_type_mappings.items()):
        box_type_mappings[kind] = factory(make, RECORDING.get(make))
    for kind in INTEGERS:
        box_type_mappings[kind] = factory(not_boxed, RecordingBox)
    for inner, kind in RECORDING.items():
        box_type_mappings[kind] = nested(inner)
    sparse_object_types.add(RecordingSparse)
    array_boxes.ArrayBox.__getitem__ = getitem
    notrace_primitives[RecordedCall] = UNRECORDED
    box_types.update(RECORDING.values())


def factory(make: Callable, recording: type | None) -> Callable:
    def make_box(value: Any, number: int, node: Any) -> Any:
        if type(node) is not RecordedCall:
            return make(value, number, node)
        if isbox(value):  # of the tape, which is within the recording
            raise not_positional(node)
        if recording is None:
            raise node.recording.refuse(f"{node.name} returns a {type(value).__name__}")
        return recording(value, number, node)

    return make_box


def not_boxed(value: Any, number: int, node: Any) -> Any:
    raise KeyError  # the tracer's own error follows


def not_positional(call: RecordedCall) -> Exception:
    return call.recording.refuse(
        f"{call.name} uses a traced value that is not a positional argument of it"
    )


def nested(make: Callable) -> Callable:
    """Boxes of a trace of the model's own, over recorded ones: a derivative within the model."""

    def make_box(value: Any, number: int, node: Any) -> Any:
        if type(node) is RecordedCall:
            raise not_positional(node)
        if type(HIDDEN.__get__(value)) in INTEGERS:
            raise KeyError  # as for the number itself
        return (tape_box_of(value) if is_box(value) else make)(value, number, node)

    return make_box
