"""Complex calls: adjoints of calls with complex numbers, for arrays of one shape.

The expressions are those of the tape's rules, as in ``adjoints``; the cotangent of a real array is
the real part.
"""

from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import fft

from daskgrad.autodiff.compiled.adjoints import COMPLEX, REPLACED, Pulled, Rule
from daskgrad.autodiff.compiled.kernels import inverse_transform, transform
from daskgrad.autodiff.compiled.lines import value_of
from daskgrad.autodiff.compiled.steps import Step

DOUBLE = (np.dtype(float), np.dtype(complex))  # in the machine's byte order


def is_array_of_numbers(value: Any) -> bool:
    """Whether this is an array in double precision, real or complex, and in C order, if it has
    several axes."""
    is_plain = type(value) is np.ndarray and value.dtype in DOUBLE and value.size > 0
    return is_plain and (value.ndim == 1 or (value.ndim > 1 and value.flags.c_contiguous))


def complex_adjoint(*funs: Any, count: int = 1) -> Any:
    """Enters a rule for calls of so many arguments, whose arrays all have one shape, and no axis
    of length one, over which the tape would sum."""

    def enter(rule: Rule) -> Rule:
        def guarded(call: Pulled) -> Sequence[Any] | None:
            step = call.step
            shapes = [np.shape(call.value(argnum)) for argnum in step.argnums]
            if len(step.args) != count or step.kwargs or 1 in call.shape:
                return None
            if not call.shape or shapes.count(call.shape) < len(shapes):
                return None
            values = [each for each in map(value_of, step.args) if np.ndim(each)]
            values += [call.writer.values[call.full()]]
            are_usual = step.value.dtype in DOUBLE and all(map(is_array_of_numbers, values))
            if not are_usual or {value.shape for value in values} != {call.shape}:
                return None
            return rule(call)

        COMPLEX.update(dict.fromkeys(funs, guarded))
        return rule

    return enter


def real_if_real(call: Pulled, text: str, number: int) -> str:
    """A complex expression as the cotangent of an argument."""
    return f"({text}).real" if call.value(number).dtype == np.float64 else text


def is_complex(call: Pulled, name: str) -> bool:
    return call.writer.values[name].dtype == np.complex128


ARITHMETIC = {
    anp.add: ("{g}", "{g}"),
    anp.subtract: ("{g}", "-{g}"),
    anp.multiply: ("{y} * {g}", "{x} * {g}"),
}


@complex_adjoint(*ARITHMETIC, count=2)
def arithmetic(call: Pulled) -> Sequence[Any] | None:
    if not is_complex(call, call.g):
        return None
    names = {"g": call.g, "x": call.arg(0), "y": call.arg(1)}
    argnums = call.step.argnums
    texts = [(n, ARITHMETIC[call.step.fun][n].format(**names)) for n in argnums]
    return [real_if_real(call, text, n) for n, text in texts]


@complex_adjoint(anp.exp)
def exponential(call: Pulled) -> Sequence[Any] | None:
    return [f"{call.ans} * {call.g}"]


@complex_adjoint(*{anp.conj, anp.conjugate})
def conjugate(call: Pulled) -> Sequence[Any] | None:
    return [f"np.conjugate({call.g})"]


@complex_adjoint(anp.real)
def real_part(call: Pulled) -> Sequence[Any] | None:
    return None if is_complex(call, call.g) else [f"{call.g} + 0j"]


@complex_adjoint(anp.imag)
def imaginary_part(call: Pulled) -> Sequence[Any] | None:
    return None if is_complex(call, call.g) else [f"-1j * {call.g}"]


@complex_adjoint(anp.abs)
def size(call: Pulled) -> Sequence[Any] | None:
    if is_complex(call, call.g):
        return None
    return [f"{call.writer.name(pull_size)}({call.g}, {call.arg(0)}, {call.ans})"]


def pull_size(g: np.ndarray, z: np.ndarray, ans: np.ndarray) -> np.ndarray:
    if np.count_nonzero(ans) == ans.size:
        return g * z.conj() / ans
    conjugated = z.conj()
    return g * np.where(conjugated, conjugated, 0.0) / np.where(ans, ans, 1.0)


TRANSFORMS = {fft.fft: transform, fft.ifft: inverse_transform}


@complex_adjoint(*TRANSFORMS)
def transformed(call: Pulled) -> Sequence[Any] | None:
    text = f"{call.writer.name(TRANSFORMS[call.step.fun])}({call.g})"
    return [real_if_real(call, text, 0)]


def is_plain_transform(step: Step) -> bool:
    return len(step.args) == 1 and not step.kwargs and is_array_of_numbers(value_of(step.args[0]))


for fun, kernel in TRANSFORMS.items():
    REPLACED[fun] = is_plain_transform, kernel
