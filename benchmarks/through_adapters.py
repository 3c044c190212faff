"""Calls of a gradient of about two milliseconds, through each adapter whose library is installed.

For ``latency.py``: an adapter's call and the plain one take turns, so that a ratio compares
neighbours. Each is asked for value and gradient by the means of its library.
"""

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import daskgrad as dg
from hosts import Program

NUMBERS, ROWS = 10, 50_000
IN_TURN = 20  # calls in a row
DATA = np.random.default_rng(0).normal(size=(ROWS, NUMBERS))


def model(x: Any) -> Any:
    return np.sum(np.logaddexp(0.0, DATA @ x)) + 0.5 * np.sum(x**2)


called = dg.delayed(model)
plain = dg.value_and_grad(lambda x: called(x))


def by_flat() -> Program:
    return dg.adapters.flat(lambda x: called(x), np.zeros(NUMBERS))[0]


def by_torch() -> Program:
    import torch

    fun = dg.adapters.as_torch(lambda x: called(x))

    def call(x: Any) -> Any:
        point = torch.tensor(x, requires_grad=True)
        value = fun(point)
        value.backward()
        return value.item(), point.grad.numpy()

    return call


def by_jax() -> Program:
    import jax

    jax.config.update("jax_enable_x64", True)
    both = jax.jit(jax.value_and_grad(dg.adapters.as_jax(lambda x: called(x))))
    return lambda x: [np.asarray(found) for found in both(x)]


def by_pytensor() -> Program:
    import pytensor

    x = pytensor.tensor.dvector("x")
    value = dg.adapters.as_pytensor(lambda x: called(x))(x)
    return pytensor.function([x], [value, pytensor.tensor.grad(value, x)])


def by_nutpie() -> Program:
    """What nutpie calls."""
    from daskgrad.adapters.nuts import Density
    from daskgrad.adapters.raveling import Raveling

    return Density(lambda x: called(x), Raveling(np.zeros(NUMBERS), "model"))


ADAPTERS: dict[str, tuple[str, Callable[[], Program]]] = {  # with the libraries that they need
    "SciPy": ("scipy", by_flat),
    "PyTorch": ("torch", by_torch),
    "JAX": ("jax", by_jax),
    "PyTensor": ("pytensor", by_pytensor),
    "nutpie": ("nutpie", by_nutpie),
}


@contextlib.contextmanager
def all_adapters() -> Iterator[dict[str, Program]]:
    """For each adapter the seconds of a call through it, and of a plain one."""
    found = {
        name: make()
        for name, (library, make) in ADAPTERS.items()
        if importlib.util.find_spec(library)
    }
    for program in found.values():
        check(program)
    yield {f"{ADAPTED}{name}": in_turn(program) for name, program in found.items()}


ADAPTED = "adapter: "  # how the names of pairs begin


def check(program: Program) -> None:
    x = np.linspace(-0.1, 0.1, NUMBERS)
    value, gradient = plain(x)
    theirs, slopes = program(x)
    if not np.isclose(theirs, value) or not np.allclose(slopes, gradient):
        raise ValueError("a value or gradient is wrong")


def in_turn(program: Program) -> Callable[[float], tuple[float, float]]:
    def call(seconds: float) -> tuple[float, float]:
        spent, count = [0.0, 0.0], 0
        while sum(spent) < seconds:
            for place, each in enumerate((program, plain)):
                start = time.perf_counter()
                for number in range(IN_TURN):
                    each(np.full(NUMBERS, 1e-3 * number))
                spent[place] += time.perf_counter() - start
            count += IN_TURN
        return spent[0] / count, spent[1] / count

    return call
