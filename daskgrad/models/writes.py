"""Writes: which of its arguments a model has written into, where NumPy only says "read-only"."""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from daskgrad.models.model import plain_function
from daskgrad.values.descriptions import argument_name
from daskgrad.values.protection import entries_of, is_sparse
from daskgrad.values.trees import flatten

ASKED = "buffer source array"  # what Cython says of memory that it could not write into
SIGNS = (  # what NumPy and Python say; the last two of ``np.dot(..., out=)`` and ``resize``
    *("read-only", "readonly", "writable", "writeable", "read-write"),
    *("output array is not acceptable", "does not own its data"),
)

OTHERS = ("daskgrad.", "autograd.", "numpy.", "scipy.")  # whose statements say nothing
KINDS = (ValueError, TypeError, BufferError)


class Argument(NamedTuple):
    """An argument of a model: its name in the function, what errors call it, and its value."""

    name: str
    label: str
    value: Any


def is_write(error: BaseException) -> bool:
    """Whether an error may come from writing into a read-only array."""
    return isinstance(error, KINDS) and any(sign in str(error) for sign in SIGNS)


def note_of_write(
    error: Exception, fun: Any, name: str, args: Sequence[Any], kwargs: dict, place: str = ""
) -> str | None:
    """Which argument a model wrote into, if the error says that it did.

    ``place``: the item that the first argument is.
    """
    leaf = getattr(error, "daskgrad_leaf", None)
    if leaf is None and not is_write(error):
        return None
    fun = plain_function(fun)
    arguments = arguments_of(fun, args, kwargs, place)
    found = written(error, fun, arguments) if leaf is None else [argument_of(leaf, arguments)]
    labels = [argument.label for argument in found or ()]
    return None if found is None else told(name, labels, ASKED in str(error))


def told(name: str, found: Sequence[str], only_asked: bool = False) -> str:
    """``only_asked``: compiled code wanted memory to write into, and may mean to read it."""
    what = f"its {found[0]}" if len(found) == 1 else "what it was given"
    done = f"handed {what} to compiled code that may write" if only_asked else f"wrote into {what}"
    listed = f": {' or '.join(found)}" if len(found) > 1 else ""
    return (
        f"model {name!r} {done}{listed}; arguments, and what the rules of dg.custom_vjp are "
        f"given, are read-only while a model runs, since others use the same arrays: copy it first"
    )


def arguments_of(fun: Any, args: Sequence[Any], kwargs: dict, place: str) -> list[Argument]:
    names = [*[argument_name(fun, number) for number in range(len(args))], *kwargs]
    labels = [name if name.startswith("argument ") else f"argument {name!r}" for name in names]
    if place and labels:
        labels[0] += f" ({place})"
    return list(map(Argument, names, labels, [*args, *kwargs.values()]))


def note_of_foreign(fun: Any, args: Sequence[Any], kwargs: dict, backend: Any) -> str | None:
    """Which arguments of a model that has failed are arrays of another library than NumPy."""
    arguments = arguments_of(plain_function(fun), args, kwargs, "")
    foreign = [a for a in arguments if any(map(is_foreign, flatten(a.value)[0]))]
    if not foreign:
        return None
    labels = ", ".join([argument.label for argument in foreign])
    return (
        f"{labels}: arrays of other libraries are handed over as they are; pass NumPy arrays, "
        f"which backend {getattr(backend, 'name', backend)!r} has use for"
    )


def is_foreign(leaf: Any) -> bool:
    return hasattr(type(leaf), "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic)


def argument_of(leaf: int, arguments: Sequence[Argument]) -> Argument:
    """The argument that a leaf of all arguments is in."""
    return [argument for argument in arguments for _ in flatten(argument.value)[0]][leaf]


def written(
    error: BaseException, fun: Any, arguments: Sequence[Argument]
) -> Sequence[Argument] | None:
    """The arguments that the failing statement may have written into.

    None of them, where it is another array that was handed out read-only; ``None`` where nothing
    was; and all of them where a model is not written in Python.
    """
    frames = [step for step in steps(error.__traceback__) if not is_of_library(step[0])]
    own_code, is_found = getattr(inspect.unwrap(fun), "__code__", None), False
    for frame, segment in reversed(frames):
        names = names_written(segment) if segment else list(frame.f_locals)
        locked = [array for name in names for array in read_only_in(value_of(name, frame))]
        is_found = is_found or bool(locked)
        found = [a for a in arguments if overlap(arrays_in(a.value), locked)]
        if locked and not found and frame.f_code is own_code:  # on others than it was called with
            found = [a for a in arguments if a.name in names]
        if found:
            return found
    return [] if is_found else None if frames else [a for a in arguments if arrays_in(a.value)]


def is_of_library(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").startswith(OTHERS)


def overlap(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    return any(np.may_share_memory(a, b) for a in first for b in second)


def arrays_in(value: Any) -> list[np.ndarray]:
    leaves = [getattr(leaf, "_value", leaf) for leaf in flatten(value)[0]]  # a box's
    return arrays_among(leaves)


def read_only_in(value: Any) -> list[np.ndarray]:
    return [array for array in arrays_among(flatten(value)[0]) if not array.flags.writeable]


def arrays_among(leaves: Sequence[Any]) -> list[np.ndarray]:
    """The leaves that are arrays, and the entries of those that are sparse matrices."""
    arrays = [entries_of(leaf) if is_sparse(type(leaf)) else leaf for leaf in leaves]
    return [array for array in arrays if isinstance(array, np.ndarray)]


def value_of(name: str, frame: FrameType) -> Any:
    """What a name stands for in a frame."""
    return frame.f_locals.get(name, frame.f_globals.get(name))


# --------------------------------------------------------------------------------- what failed


def steps(traceback: TracebackType | None) -> Iterator[tuple[FrameType, str]]:
    """The frames of a traceback, outermost first, each with the code that failed in it."""
    while traceback is not None:
        yield traceback.tb_frame, segment_of(traceback)
        traceback = traceback.tb_next


def segment_of(traceback: TracebackType) -> str:
    """The piece of source that a frame was at; empty where that is not at hand."""
    code = traceback.tb_frame.f_code
    positions = code.co_positions()
    first, last, begin, end = next(islice(positions, traceback.tb_lasti // 2, None))
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = linecache.getlines(code.co_filename, traceback.tb_frame.f_globals)[first - 1 : last]
    if not lines:
        return ""
    lines[-1] = lines[-1].encode()[:end].decode()
    lines[0] = lines[0].encode()[begin:].decode()
    return "".join(lines)


def names_written(segment: str) -> list[str]:
    """The names of what a piece of source may write into."""
    try:
        tree: Any = ast.parse(textwrap.dedent(segment))
    except SyntaxError:
        return []
    statement = tree.body[0] if tree.body else None
    target = getattr(statement, "target", None) or getattr(statement, "value", None)
    if isinstance(target, ast.Subscript):
        return names_in(target.value)
    if isinstance(target, ast.Call):
        outs = [keyword.value for keyword in target.keywords if keyword.arg == "out"]
        return names_in(*outs) or names_in(target)
    return names_in(target)


def names_in(*parts: Any) -> list[str]:
    nodes = [node for part in parts if part is not None for node in ast.walk(part)]
    return [node.id for node in nodes if isinstance(node, ast.Name)]
