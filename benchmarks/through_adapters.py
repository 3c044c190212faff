"""Calls of a gradient of about two milliseconds, through each adapter whose library is installed.

For ``latency.py``: an adapter's call, the plain one and the bare one take turns, so that a ratio
compares neighbours. Each is asked for value and gradient by the means of its library. The bare call
is the least that the library allows: PyTorch's ``autograd.Function`` and JAX's ``pure_callback``
around the plain one, for this model alone.
"""

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import daskgrad as dg
from hosts import Program

NUMBERS, PARTS = 10, 320
IN_TURN = 20  # calls in a row
MATRICES = np.random.default_rng(0).normal(size=(PARTS, NUMBERS, NUMBERS)) / NUMBERS


def model(x: Any) -> Any:
    """Of many small operations: large arrays would put the libraries' code out of the caches."""
    return sum([np.sum(np.tanh(matrix @ x)) for matrix in MATRICES])


called = dg.delayed(model, compile=True)
plain = dg.value_and_grad(lambda x: called(x))


def by_flat() -> Program:
    return dg.adapters.flat(lambda x: called(x), np.zeros(NUMBERS))[0]


def by_torch() -> Program:
    return torch_program(dg.adapters.as_torch(lambda x: called(x)))


def bare_torch() -> Program:
    import torch

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            value, gradient = plain(x.numpy(force=True))
            context.gradient = torch.as_tensor(gradient)
            return torch.tensor(value)

        @staticmethod
        def backward(context: Any, cotangent: Any) -> Any:
            return cotangent * context.gradient

    return torch_program(Bare.apply)


def torch_program(fun: Callable) -> Program:
    import torch

    def call(x: Any) -> Any:
        point = torch.tensor(x, requires_grad=True)
        value = fun(point)
        value.backward()
        return value.item(), point.grad.numpy()

    return call


def by_jax() -> Program:
    return jax_program(dg.adapters.as_jax(lambda x: called(x)))


def bare_jax() -> Program:
    import jax

    shapes = jax.ShapeDtypeStruct((), float), jax.ShapeDtypeStruct((NUMBERS,), float)

    def forward(x: Any) -> Any:
        return jax.pure_callback(lambda x: plain(np.asarray(x)), shapes, x)

    bare = jax.custom_vjp(lambda x: forward(x)[0])
    bare.defvjp(forward, lambda gradient, cotangent: (cotangent * gradient,))
    return jax_program(bare)


def jax_program(fun: Callable) -> Program:
    import jax

    jax.config.update("jax_enable_x64", True)
    both = jax.jit(jax.value_and_grad(fun))
    return lambda x: [np.asarray(found) for found in both(x)]


def by_pytensor() -> Program:
    import pytensor

    x = pytensor.tensor.dvector("x")
    value = dg.adapters.as_pytensor(lambda x: called(x))(x)
    return pytensor.function([x], [value, pytensor.tensor.grad(value, x)])


def by_nutpie() -> Program:
    """What nutpie calls."""
    from daskgrad.adapters.nuts import Density
    from daskgrad.autodiff.values.vectors import Raveling

    return Density(lambda x: called(x), Raveling(np.zeros(NUMBERS), "model"))


ADAPTERS: dict[str, tuple[str, Callable[[], Program], Callable[[], Program]]] = {
    "SciPy": ("scipy", by_flat, lambda: plain),  # the library, the adapter, and what is bare
    "PyTorch": ("torch", by_torch, bare_torch),
    "JAX": ("jax", by_jax, bare_jax),
    "PyTensor": ("pytensor", by_pytensor, lambda: plain),
    "nutpie": ("nutpie", by_nutpie, lambda: plain),
}


@contextlib.contextmanager
def all_adapters() -> Iterator[dict[str, Program]]:
    """For each adapter the seconds of a call through it, of a plain one, and of a bare one."""
    found = {
        name: (make(), plain, bare())
        for name, (library, make, bare) in ADAPTERS.items()
        if importlib.util.find_spec(library)
    }
    for programs in found.values():
        for program in programs:
            check(program)
    yield {f"{ADAPTED}{name}": in_turn(programs) for name, programs in found.items()}


ADAPTED = "adapter: "  # how their names begin


def check(program: Program) -> None:
    x = np.linspace(-0.1, 0.1, NUMBERS)
    value, gradient = plain(x)
    theirs, slopes = program(x)
    if not np.isclose(theirs, value) or not np.allclose(slopes, gradient):
        raise ValueError("a value or gradient is wrong")


def in_turn(programs: Sequence[Program]) -> Callable[[float], list[float]]:
    """The seconds of a call of each."""

    def call(seconds: float) -> list[float]:
        spent, count = [0.0] * len(programs), 0
        while sum(spent) < seconds:
            for place, each in enumerate(programs):
                start = time.perf_counter()
                for number in range(IN_TURN):
                    each(np.full(NUMBERS, 1e-3 * number))
                spent[place] += time.perf_counter() - start
            count += IN_TURN
        return [each / count for each in spent]

    return call
