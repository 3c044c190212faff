"""What the calls in the tables of bad input use, beside ``support/inputs``."""

import types

import autograd.numpy as anp
import dask
import dask.bag
import numpy as np
import scipy.sparse
from inputs import X, energy, named

import daskgrad as dg
from daskgrad.autodiff.libraries import registry

LONG = np.arange(12.0).reshape(3, 4)
ARRAY = np.arange(12.0).reshape(4, 3)
MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])
BROADCAST = np.broadcast_to(1.0, 10**12)
OBJECTS = np.array([1.0, None], dtype=object)
SPARSE = scipy.sparse.csr_array(np.eye(3))
ITSELF: list = [1.0]
ITSELF.append(ITSELF)


class Unit(np.ndarray):
    """A subclass of NumPy's array, as units are."""


WITH_UNIT = X.view(Unit)
V = dg.variable(X, "v")
ROWS = dg.Rows((5, 4), (0,), [1, 3], np.ones((2, 4)))
A, B = dg.array(LONG, (2, 3)), dg.array(LONG, (1, 2))
GRID = dg.grid(ARRAY, (2, 1))
FLAT, X0, _ = dg.adapters.flat(energy, X)
TREE, _, _ = dg.adapters.flat(lambda p: energy(p["w"]), {"w": X, "n": 1})


def table():
    import pandas

    return pandas.DataFrame({"a": X})


def dask_table():
    import dask.dataframe

    return dask.dataframe.from_pandas(table(), npartitions=1)


def yielding(x):
    yield x


def used_up():
    return (number for number in [1.0, 2.0])


# ------------------------------------------------------------------------- models and derivatives


def identity(x):
    return x


def node_of(fun, **options):
    return dg.delayed(fun, name="model", **options)


def differences_of(fun, **options):
    return dg.finite_difference(named(fun, "model"), **options)


def complex_step(fun):
    return dg.grad(differences_of(fun, method="complex-step"))(X)


def gradient(fun, **options):
    return dg.grad(node_of(fun, **options))(X)


def debugged(fun):
    with dg.debug_nans():
        return gradient(fun)


def under(policy):
    with dask.config.set({"daskgrad.pullbacks": policy}):
        return dg.grad(energy)(X)


def with_constant(constant, fun=lambda x, c: anp.sum(x)):
    return dg.grad(lambda x: node_of(fun)(x, constant))(X)


def pulled(cotangent, fun=identity):
    return dg.vjp(node_of(fun), X)[1](cotangent)


def pushed(tangent):
    return dg.jvp(energy, (X,), (tangent,))


def ruled(forward=lambda x: (np.sum(x), x), backward=lambda r, c: (c * np.ones(3),)):
    function = dg.custom_vjp(named(lambda x: np.sum(x), "ruled"))
    function.defvjp(forward, backward)
    return dg.grad(dg.delayed(function))(X)


def root(solver=lambda a: a * 1.0, residual=lambda x, a: x - a, linear_solver=None):
    function = dg.implicit(named(lambda a: solver(a), "solver"), residual, linear_solver)
    return dg.grad(node_of(lambda a: anp.sum(function(a))))(X)


# --------------------------------------------------------------------------- sums, loops, grids


def term(item, x):
    return anp.sum(item * x)


def summed(items, fun=term, **options):
    return dg.map_sum(named(lambda *a: fun(*a), "term"), items, X, **options).compute()


def sum_of_terms(*terms, **options):
    fun = named(lambda number: terms[number], "term")
    return dg.map_sum(fun, list(range(len(terms))), **options).compute()


def closed(shards):
    shards.close()
    return dg.map_sum(term, shards, X).compute()


def closed_since(shards):
    batch = shards.sample(1)
    shards.close()
    return dg.map_sum(term, batch, X).compute()


def empty_bag():
    return dask.bag.Bag({("none", 0): []}, "none", 1)


def made_here():
    """A module that is in no file."""
    module = types.ModuleType("made_here")
    vars(module).update(dict.fromkeys(registry.FUNCTIONS, len))
    return module


def step(u, *others):
    return 0.5 * u


def pair(u):
    return u, u


def run(fun, state, n=3, *shared, **options):
    end = dg.scan(fun, state, n, *shared, **options)
    return (end[0] if "outputs" in options else end).compute()


def within(*args, **options):
    """Inside a model."""
    return dg.delayed(lambda: dg.scan(*args, **options), name="model")().compute()


def inner(u, *others):
    return u[1:-1, 1:-1]


def overlap(*args, **options):
    return dg.map_overlap(inner, *args, **options)
