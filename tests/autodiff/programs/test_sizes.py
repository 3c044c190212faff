"""Models of items of many sizes: the bits of the tape, and one source wherever calls are alike."""

import gc
from typing import NamedTuple

import numpy as np
import pytest
from comparisons import assert_same
from numpy.testing import assert_array_equal
from recorded import program_of

import daskgrad as dg
from daskgrad.autodiff.programs.backend import prepare
from daskgrad.autodiff.programs.boxes import RecordedCall
from daskgrad.autodiff.programs.recording import RecordedNode

LOG_2PI = np.log(2.0 * np.pi)
X = np.array([0.4, -0.3, 0.7, 0.2])
TABLE = np.cos(np.arange(300.0))


class Item(NamedTuple):
    size: int
    y: np.ndarray  # (n,)
    z: np.ndarray  # (n, 4)


def make_items(sizes, seed=0):
    random = np.random.default_rng(seed)
    return [Item(n, random.normal(size=n), random.normal(size=(n, 4))) for n in sizes]


def recurrent(item, x):
    state = x[0]
    for n in range(item.size):
        state = np.tanh(x[1] * state + item.y[n])
    return state


def by_cholesky(item, x):
    covariance = np.exp(x[0]) * item.z @ item.z.T + np.exp(x[1]) * np.eye(len(item.y))
    root = np.linalg.cholesky(covariance)
    return np.sum(np.log(np.diag(root))) + np.sum(np.linalg.solve(root, item.y - x[2]) ** 2)


def shifted(item, x):
    total = 0.0
    for lag in (1, 2):
        if lag < item.size:
            total = total + np.sum((x[0] * item.y[lag:]) * (x[1] * item.y[:-lag])) / item.size
    return total


def largest_of_half(item, x):
    return np.max(item.y[: max(1, item.size // 2)]) * np.sum(x**2) + np.max(
        np.outer(item.y, x)[: (item.size + 1) // 2]
    )


ALIKE = {  # which sizes from 4 on have one source
    "a product": lambda item, x: np.sum(np.tanh(item.z @ x)) / len(item.y),
    "a mean": lambda item, x: np.mean(item.y * x[1]) + np.mean((item.z * x) ** 2, axis=0)[1],
    "a variance": lambda item, x: np.var(item.z @ x) + np.std(item.z * x),
    "a size as a number": lambda item, x: item.size * (LOG_2PI + x[0]) + np.sum(item.y * x[1]),
    "arange": lambda item, x: np.sum(np.arange(len(item.y)) * item.y * x[0]),
    "a list as an index": lambda item, x: np.sum((item.z @ x)[list(range(item.size))[::-1]] ** 2),
    "a triangle": lambda item, x: np.sum(np.tril(np.outer(item.y * x[0], item.y)) ** 2),
    "a mask": lambda item, x: np.sum(
        np.where(np.tri(item.size) > 0.0, np.outer(item.y * x[0], item.y), x[1])
    ),
    "of a table": lambda item, x: np.sum(TABLE[: item.size] * item.y) * x[0],
    "reshape": lambda item, x: np.sum((item.z * x).reshape(2 * item.size, 2)[:, 1] ** 2),
    "concatenate": lambda item, x: np.sum(np.concatenate([x, item.y * x[0], item.y]) ** 2),
    "cumsum": lambda item, x: np.sum(np.cumsum(item.y * x[0]) ** 2),
    "einsum": lambda item, x: np.einsum("ij,j,i->", item.z, x, item.y),
    "cholesky": by_cholesky,
    "the largest of a half": largest_of_half,
    "of Fortran's order": lambda item, x: np.sum((item.z.T * x[:, None]).T @ x),
    "a complex number": lambda item, x: np.sum(np.abs(np.fft.fft(item.y * x[0])) ** 2),
}
UNLIKE = {  # where the size decides which calls are made
    "a loop": recurrent,
    "a branch": lambda item, x: (
        np.sum(item.y * x[0]) if len(item.y) > 10 else np.sum((item.z @ x) ** 2)
    ),
    "lags": shifted,
    "an axis": lambda item, x: np.sum((item.z * x).sum(axis=item.size % 2) ** 2),
    "a branch on data": lambda item, x: (
        np.sum(item.y * x[0]) if item.y[0] > 0.0 else np.sum(item.y**2 * x[1])
    ),
    "a selection": lambda item, x: np.sum((item.z @ x)[item.y > 0.0] ** 2),
    "an impure constant": lambda item, x: np.sum(item.y * x[0]) * (1.0 + (item.size == 6)),
    "roll": lambda item, x: np.sum(np.roll(item.y * x[0], item.size // 2) * item.y),
    "text": lambda item, x: np.sum(item.y * x[0]) * len(f"{item.size}"),
}
SIZES = [5, 3, 8, 5, 12, 3, 4, 8, 2, 1, 6, 5, 30, 11, 4, 1, 2, 7, 9, 10]


def entries_of(model):
    return list(prepare(model.model.fun).programs._entries.values())


def compare_sweeps(fun, items, sweeps=4):
    """Sums over items, by programs and by the tape, at several points; the compiled model."""
    model, plain = dg.delayed(fun, compile=True), dg.delayed(fun, compile=False)
    for sweep in range(sweeps):
        x = X * (1.0 + 0.1 * sweep)
        values, pulled = zip(
            *[value_and_pulled(lambda x, m=m: dg.map_sum(m, items, x), x) for m in (model, plain)],
            strict=True,
        )
        assert_same(*values)
        assert_same(*pulled)
    return model


def value_and_pulled(fun, x):
    value, pull = dg.vjp(fun, x)
    return value, pull(np.cos(np.arange(np.size(value))).reshape(np.shape(value)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALIKE)
def test_sizes_share_a_source(name, synchronous):
    model = compare_sweeps(ALIKE[name], make_items([n for n in SIZES if n > 3]))
    entries = [entry for entry in entries_of(model) if not entry.reads]
    assert all([len(entry.ways) == 1 for entry in entries]), [each.refusal for each in entries]
    assert len({entry.ways[0].program.forward.__code__ for entry in entries}) == 1
    compare_sweeps(ALIKE[name], make_items(SIZES, 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNLIKE)
def test_sizes_that_make_other_calls(name, synchronous):
    compare_sweeps(UNLIKE[name], make_items(SIZES))
    compare_sweeps(UNLIKE[name], make_items(SIZES, 1))


def test_a_recording_goes_at_once():
    """In circles the garbage collector would have to find thousands of steps."""
    gc.collect()
    gc.disable()
    try:
        before = count_steps()
        program_of(lambda x: [np.sum(np.exp(x) * 2.0), np.max(x)], [np.ones(3)], [0])
        assert count_steps() == before
    finally:
        gc.enable()


def count_steps():
    return sum([type(thing) in (RecordedCall, RecordedNode) for thing in gc.get_objects()])


@pytest.mark.parametrize("choice", [True, "auto"])
def test_items_whose_arrays_stand_at_other_places_are_not_taken_for_each_other(choice, synchronous):
    """They are of one structure, and later sums know what earlier ones have found."""

    def model(item, x):
        first, second = item
        return np.sum(first * x[0]) + 3.0 * np.sum(second * x[1])

    arrays = [np.linspace(1.0, 2.0, 3 + n % 2) for n in range(60)]
    items = [(array, 2) if n % 2 else (3, array) for n, array in enumerate(arrays)]

    def gradient(choice):
        made = dg.delayed(model, compile=choice)
        return dg.grad(lambda x: dg.map_sum(made, items, x, grainsize=64))(np.array([0.3, 0.4]))

    expected = gradient(False)
    for _ in range(4):
        assert_array_equal(gradient(choice), expected)
