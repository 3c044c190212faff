"""Shortcuts: value and gradient of a compiled model by one Python function.

A function for arguments of one kind looks whether they are of that kind, and has the lines of the
program's two passes. So there is nothing between the caller and NumPy: no node, no pullback, no
residuals. Whatever is not as usual is left to others, who do the same with all checks.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.arguments import Arguments, Unusual
from daskgrad.autodiff.programs.program import Program
from daskgrad.autodiff.programs.purity import is_of_library
from daskgrad.autodiff.programs.signatures import signature_of
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.rules.math_reductions import spread
from daskgrad.autodiff.values.cotangents import project, zeros
from daskgrad.autodiff.values.trees import LEAF

MOST = 32  # functions of one model
LONGEST_WAIT = 64  # calls between two attempts to make one
MOST_LINES = 2000  # of a program: a longer one takes much longer to run than what is saved

OPERATORS = {
    ast.Add: "np.add",
    ast.Sub: "np.subtract",
    ast.Mult: "np.multiply",
    ast.Div: "np.divide",
    ast.MatMult: "",  # BLAS may have other bits where it writes into an array
}
NEW_ARRAYS = (np.dot, np.zeros, spread.fun)  # what returns a new array, beside operators and ufuncs


class Shortcuts:
    """The shortcuts of a function, with respect to the arguments at ``numbers``.

    ``is_bare``: the gradient of the only one is not in a tuple. ``has_out``: the last argument is
    what gradients are written into. ``asked``: of arguments, the numbers of those of their
    differentiated leaves whose gradients should be rows.
    """

    def __init__(
        self,
        programs: Any,
        numbers: Sequence[int],
        is_bare: bool,
        has_out: bool,
        asked: Callable[[tuple], Sequence[int]],
    ):
        self._programs = programs
        self._asked = asked
        self._numbers = numbers
        self._is_bare = is_bare
        self._has_out = has_out
        self._made: list[Callable] = []
        self._known: set[Any] = set()
        self._wait, self._failures = 0, 0

    def __call__(self, fun: Callable, args: tuple) -> tuple[Any, Any] | None:
        """Value and gradients; or None: if there is no program for this call, if it is to be
        compared with the tape, and after any exception."""
        if self._programs.is_due:
            return None
        for shortcut in self._made:
            try:
                found = shortcut(*args)
            except Diverged:
                continue
            except Exception:  # others run the model, and raise what it raises
                return None
            if found is not None:
                self._programs.calls += 1
                return found
        if self._wait:
            self._wait -= 1
        elif len(self._made) < MOST:
            made = list(self._new(fun, args))
            self._made = [*self._made, *made]
            self._failures = 0 if made else self._failures + 1
            self._wait = min(self._failures, LONGEST_WAIT)
        return None

    def _new(self, fun: Callable, args: tuple) -> Iterator[Callable]:
        """Shortcuts for arguments like these, as far as there are programs."""
        try:
            arguments = Arguments(args[:-1] if self._has_out else args, self._numbers)
            if self._has_out:
                arguments.write_into(args[-1], self._is_bare)
        except Unusual:
            return
        signature = signature_of(arguments.layout._replace(asked=self._asked(args)))
        entry = self._programs.entry(fun, signature)
        if signature is None or entry is None:
            return
        for way in entry.ways:
            key = id(way), arguments.condition
            is_short = way.program.source.text.count("\n") < MOST_LINES
            if way.structure == LEAF and is_short and key not in self._known:
                self._known.add(key)
                inputs = arguments.spell_inputs(signature.places)
                made = shortcut_of(way.program, arguments, inputs, self._is_bare)
                if made is not None:
                    yield made


def shortcut_of(
    program: Program, arguments: Arguments, inputs: Sequence[str], is_bare: bool
) -> Callable | None:
    """A function that returns value and gradients, or None for arguments that are not like these.

    There is none where a gradient is zero, of which others warn; and where a function of the user's
    is called, which gets read-only arrays from others.
    """
    passes = Passes(program)
    if any(map(is_users, program.constants.values())):
        return None
    zero = {number for number, name in enumerate(passes.pulled) if name == "None"}
    if not passes.seeds or any(zero.issuperset(each) for each in arguments.active):
        return None
    (value,) = passes.outputs
    if arguments.outs:
        last = [
            passes.write(number, leaf, out)
            for number, (leaf, out) in enumerate(zip(arguments.leaves, arguments.outs, strict=True))
        ]
    else:
        last = [passes.give(number, leaf) for number, leaf in enumerate(arguments.leaves)]
    lines = [
        f"def shortcut({arguments.parameters}):",
        f"if not ({arguments.condition}): return None",
        *[f"{name} = {given}" for name, given in zip(passes.inputs, inputs, strict=True)],
        *passes.forward,
        f"if type({value}) is not _real: return None",
        f"{passes.seeds[0]} = _real(1.0)",
        *passes.backward,
        *last,
        f"return {value}, {arguments.spell_result(is_bare)}",
    ]
    (example,) = program.seeds
    if type(example) not in (np.float64, np.float32):
        return None
    names = {**NAMES, "_real": type(example)}
    namespace = {**program.forward.__globals__, **names, **arguments.names}
    exec(compile("\n    ".join(lines), "<shortcut>", "exec"), namespace)
    return namespace["shortcut"]


class Passes:
    """The lines of a program: ``forward`` leads from ``inputs`` to ``outputs``, and ``backward``
    from ``seeds`` to ``pulled``."""

    def __init__(self, program: Program):
        source = program.source.text.splitlines()
        forward, backward = ast.parse(program.source.text).body
        assert isinstance(forward, ast.FunctionDef)
        assert isinstance(backward, ast.FunctionDef)
        *run, ran = forward.body
        *pull, pulled = backward.body
        if pull and source[pull[0].lineno - 1].endswith(" = residuals"):
            del pull[0]
        self.forward = [source[line.lineno - 1].strip() for line in run]
        self.backward = [source[line.lineno - 1].strip() for line in pull]
        self.inputs = [each.arg for each in forward.args.args]
        self.seeds = [each.arg for each in backward.args.args[1:]]
        self.outputs = list(map(ast.unparse, ran.value.elts[0].elts))  # type: ignore[attr-defined]
        self.pulled = list(map(ast.unparse, pulled.value.elts))  # type: ignore[attr-defined]
        self._names = program.forward.__globals__
        self._new = set(filter(None, map(self._name_of_new_array, [*run, *pull])))
        self._pull = pull

    def give(self, number: int, leaf: tuple[str, Any]) -> str:
        """The statement that makes a gradient of a cotangent: it shares memory with nothing."""
        name, (text, value) = self.pulled[number], leaf
        owned = f"d{number} = _own({name}, {text})"
        if type(value) is np.float64:
            return f"d{number} = {name} if type({name}) is _float64 else _own({name}, {text})"
        if not self._is_for_one(number, value):
            return owned
        return (
            f"d{number} = {name}\n    "
            f"if not (type({name}) is _ndarray and {name}.shape == {value.shape} and "
            f"{name}.dtype is {text}.dtype and {name}.flags.c_contiguous): {owned}"
        )

    def write(self, number: int, leaf: tuple[str, Any], out: str) -> str:
        """The statement that writes a gradient into an array, if the line that makes it cannot."""
        name, (text, value) = self.pulled[number], leaf
        if self._is_for_one(number, value) and value.dtype == np.float64:
            for place, line in enumerate(self._pull):
                if target_of(line) != name:
                    continue
                made = self._text_into(getattr(line, "value", None), out)
                if made is not None:
                    self.backward[place] = f"{name} = {made}"
                    return f"d{number} = {name}"
        return f"_write({out}, {name}, {text})"

    def _is_for_one(self, number: int, value: Any) -> bool:
        """Whether a gradient is a new array that is the gradient of nothing else."""
        name = self.pulled[number]
        is_first = name not in self.pulled[:number]
        return is_first and name in self._new and type(value) is np.ndarray

    def _name_of_new_array(self, line: ast.stmt) -> str | None:
        """The name that a statement assigns, if an array there is a new one."""
        name, made = target_of(line), getattr(line, "value", None)
        is_new = isinstance(made, ast.UnaryOp) and isinstance(made.op, ast.USub)
        is_new |= isinstance(made, ast.BinOp) and type(made.op) in OPERATORS
        if isinstance(made, ast.Call):
            fun = self._function(made)
            is_new = isinstance(fun, np.ufunc) and len(made.args) == fun.nin and not made.keywords
            is_new |= any(fun is each for each in NEW_ARRAYS)
        return name if is_new else None

    def _function(self, call: ast.Call) -> Any:
        name = ast.unparse(call.func)
        return getattr(np, name[3:], None) if name.startswith("np.") else self._names.get(name)

    def _text_into(self, made: Any, out: str) -> str | None:
        """What a statement assigns, written into an array: with the same bits, as arithmetic is
        exactly rounded."""
        if isinstance(made, ast.BinOp) and OPERATORS[type(made.op)]:
            given = f"{ast.unparse(made.left)}, {ast.unparse(made.right)}"
            return f"{OPERATORS[type(made.op)]}({given}, {out})"
        if isinstance(made, ast.UnaryOp):
            return f"np.negative({ast.unparse(made.operand)}, {out})"
        if isinstance(made, ast.Call) and self._function(made) is np.zeros:
            return f"_fill({out}, 0.0)"
        if isinstance(made, ast.Call) and self._function(made) is spread.fun:
            return f"_fill({out}, {ast.unparse(made.args[0])})"
        return None


def target_of(line: ast.stmt) -> str | None:
    """The name that a statement assigns."""
    if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
        return line.targets[0].id
    return None


def is_users(constant: Any) -> bool:
    module = getattr(constant, "__module__", None)
    return callable(constant) and module is not None and not is_of_library(module)


def own(cotangent: Any, leaf: Any) -> Any:
    """A cotangent in its leaf's shape and dtype, which shares memory with nothing."""
    if cotangent is None:
        return zeros(leaf)
    gradient = project(cotangent, leaf)
    return gradient.copy() if isinstance(gradient, np.ndarray) else gradient


def write(out: np.ndarray, cotangent: Any, leaf: Any) -> None:
    out[...] = 0.0 if cotangent is None else project(cotangent, leaf)


def fill(out: np.ndarray, number: Any) -> np.ndarray:
    out[...] = number
    return out


NAMES = {
    "_own": own,
    "_write": write,
    "_fill": fill,
    "_float64": np.float64,
    "_ndarray": np.ndarray,
}
