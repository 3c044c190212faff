"""What tests of bad input share: models, arguments, and objects that nodes hide in."""

import dataclasses
import functools

import autograd.numpy as anp
import numpy as np
import scipy.sparse

import daskgrad as dg

X = np.array([0.3, 0.5, 0.9])
C = np.array([1.0, 2.0, 3.0])
MATRIX = np.arange(9.0).reshape(3, 3) + 5.0 * np.eye(3)


@dg.delayed
def energy(x):
    return anp.sum(x**2)


@dg.delayed
def double(x):
    return 2.0 * x


def notes(error):
    return " ".join(getattr(error, "__notes__", []))


def named(fun, name):
    fun.__name__ = name
    return fun


@dataclasses.dataclass
class Unregistered:
    inside: object


def differences(fun, x, step=1e-6):
    sides = [(fun(x + step * e), fun(x - step * e)) for e in np.eye(len(x))]
    return np.array([(up - down) / (2 * step) for up, down in sides])


# ------------------------------------------------------------- what the rows of the table share


V = dg.variable(X, "v")
MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])
BROADCAST = np.broadcast_to(1.0, 10**12)
OBJECTS = np.array([1.0, None], dtype=object)
STRUCTURED = np.zeros(3, dtype=[("a", float)])
SPARSE = scipy.sparse.csr_array(np.eye(3))


class Unit(np.ndarray):
    """A subclass of NumPy's array, as units are."""


WITH_UNIT = X.view(Unit)
ITSELF: list = [1.0]
ITSELF.append(ITSELF)
DEEP = functools.reduce(lambda inner, _: [inner], range(3000), 1.0)


def term(item, x):
    return anp.sum(item * x)


def identity(x):
    return x


def node_of(fun, **options):
    return dg.delayed(fun, name="model", **options)


def gradient(fun, *args, **options):
    return lambda: dg.grad(node_of(fun, **options))(*(args or (X,)))


def with_constant(constant, fun=lambda x, c: anp.sum(x)):
    return lambda: dg.grad(lambda x: node_of(fun)(x, constant))(X)


def summed(items, fun=term, **options):
    return lambda: dg.map_sum(named(lambda *a: fun(*a), "term"), items, X, **options).compute()


def sum_of_terms(*terms, **options):
    fun = named(lambda number: terms[number], "term")
    return lambda: dg.map_sum(fun, list(range(len(terms))), **options).compute()


def pulled(cotangent, fun=identity):
    return lambda: dg.vjp(node_of(fun), X)[1](cotangent)


def pushed(tangent):
    return lambda: dg.jvp(energy, (X,), (tangent,))


def ruled(forward=lambda x: (np.sum(x), x), backward=lambda r, c: (c * np.ones(3),)):
    function = dg.custom_vjp(named(lambda x: np.sum(x), "ruled"))
    function.defvjp(forward, backward)
    return lambda: dg.grad(dg.delayed(function))(X)


def root(solver=lambda a: a * 1.0, residual=lambda x, a: x - a, linear_solver=None):
    function = dg.implicit(named(lambda a: solver(a), "solver"), residual, linear_solver)
    return lambda: dg.grad(node_of(lambda a: anp.sum(function(a))))(X)


async def waiting(x):
    return x


def yielding(x):
    yield x


def used_up():
    return (number for number in [1.0, 2.0])


ITEMS = r"must be a list, a tuple.*found "
NO_NUMBERS = r"'model' returned {}; expected numbers or arrays"
MANY = "broadcast from fewer numbers, and would be copied to .* GiB"
ONCE = "one run of the model uses up.*pass a list"
NESTED = "cannot be flattened: it is nested too deep, or holds itself"
PARAMETER = "argument 'x' of 'energy' is {}, which has no derivative.*np.asarray converts"
HOLDS = r"'{}' holds {}"
SEED = r"the seed of dg\.{} must be an integer or a sequence of integers.*found "


def debugged(ask):
    with dg.debug_nans():
        ask()


def closed(shards):
    shards.close()
    dg.map_sum(term, shards, X).compute()
