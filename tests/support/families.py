"""Programs of any size: for each, by its name, what makes one of N pieces, ready to be called."""

import autograd.numpy as np
import dask

import daskgrad as dg

X = np.linspace(0.5, 1.5, 4)


@dg.delayed
def number(x):
    return np.sum(x * x)


@dg.delayed
def array(x):
    return x * 1.0001 + 0.1


def term(item, x):
    return np.sum(x * item)


def wave(item, x):
    return 0.1 * x + item * 1e-3


def pair(part, x):
    return np.sum(part[0] * x) * part[1]


def repeated(model, times, x):
    for _ in range(times):
        x = model(x)
    return x


def numbers(values):
    return dg.sum([number(value) for value in values])


def pieces(count):
    return dg.delayed(lambda x: [x * float(n) for n in range(count)], name="pieces")


def floats(count):
    return [float(n) for n in range(count)]


def arrays(count):
    return [X.copy() for _ in range(count)]


def accumulated(add, count, x):
    total = number(x)
    for _ in range(count):
        total = add(total, number(x))
    return total


def chained_sums(items, count, x):
    return number(repeated(lambda y: dg.map_sum(wave, items, y), count, x))


def packed(x, count):
    """The parts of an argument that is a list, all in one model."""
    return dg.delayed(lambda parts: sum([np.sum(part * part) for part in parts]))(x)


def gradient(fun, *args, argnums=0, **options):
    both = dg.value_and_grad(fun, argnums, **options)
    return lambda: both(*args)


def pulled_back(fun, *args):
    def run():
        value, pullback = dg.vjp(fun, *args)
        return pullback(value)

    return run


def differentiated(count):
    variables = [dg.variable(X) for _ in range(count)]
    return dask.compute(dg.differentiate(numbers(variables), variables))


def selected(x, count):
    """Each item of a list, which one model returns, alone."""
    parts = pieces(count)(x)
    return numbers([parts[n] for n in range(count)])


def entries(x, count):
    """Each row of an array, which one model returns, alone."""
    y = array(x)
    return numbers([y[n] for n in range(count)])


GRADIENTS = {
    "a list of parameters": lambda n: gradient(numbers, arrays(n)),
    "a list of parameters in one model": lambda n: gradient(lambda x: packed(x, n), arrays(n)),
    "a dict of parameters": lambda n: gradient(
        lambda x: numbers([x[str(k)] for k in range(n)]), {str(k): X.copy() for k in range(n)}
    ),
    "many arguments": lambda n: gradient(
        lambda *xs: numbers(xs), *arrays(n), argnums=tuple(range(n))
    ),
    "many sums": lambda n: gradient(
        lambda x: dg.sum([dg.map_sum(term, floats(3), x) for _ in range(n)]), X
    ),
    "a chain of sums": lambda n: gradient(lambda x: chained_sums([1.0, 2.0], n, x), X),
    "a chain": lambda n: gradient(lambda x: number(repeated(array, n, x)), X),
    "a chain of plus": lambda n: gradient(lambda x: accumulated(lambda a, b: a + b, n, x), X),
    "a chain of sums of two": lambda n: gradient(
        lambda x: accumulated(lambda a, b: dg.sum([a, b]), n, x), X
    ),
    "many consumers of a value": lambda n: gradient(lambda x: numbers([array(x)] * n), X),
    "items of a model's list": lambda n: gradient(lambda x: selected(x, n), X),
    "rows of a model's array": lambda n: gradient(lambda x: entries(x, n), np.ones((n, 4))),
    "slices of an array": lambda n: gradient(
        lambda x: numbers([array(x)[k : k + 1] for k in range(n)]), np.ones(n)
    ),
    "items of a list": lambda n: gradient(lambda x: dg.map_sum(term, floats(n), x), X),
    "rows of items": lambda n: gradient(lambda x: dg.map_sum(term, np.ones((n, 4)), x), X),
    "parameters of rows": lambda n: gradient(
        lambda p, x: dg.map_sum(pair, dg.zip(p, [1.0] * n), x), np.ones((n, 4)), X, argnums=(0, 1)
    ),
    "parameters of items": lambda n: gradient(
        lambda p, x: dg.map_sum(pair, dg.zip(p, [1.0] * n), x), arrays(n), X, argnums=(0, 1)
    ),
    "nodes as items": lambda n: gradient(
        lambda x: dg.map_sum(term, [array(x) for _ in range(n)], x), X
    ),
    "auxiliary nodes": lambda n: gradient(
        lambda x: (number(x), [array(x) for _ in range(n)]), X, has_aux=True
    ),
    "a sum in a model": lambda n: gradient(
        lambda x: dg.delayed(lambda y: dg.map_sum(term, floats(n), y))(x), X
    ),
    "a list of constants": lambda n: gradient(
        lambda x: dg.delayed(lambda y, c: np.sum(y) * c[0])(x, floats(n)), X
    ),
}

OTHERS = {
    "the pullback of a chain": lambda n: pulled_back(lambda x: repeated(array, n, x), X),
    "the pullback of many outputs": lambda n: pulled_back(
        lambda x: [array(x) for _ in range(n)], X
    ),
    "the tangent of a chain": lambda n: (
        lambda: dg.jvp(lambda x: number(repeated(array, n, x)), (X,), (X,))
    ),
    "a Hessian-vector product of a chain": lambda n: (
        lambda: dg.hvp(lambda x: number(repeated(array, n, x)), (X,), (X,))
    ),
    "a Hessian-vector product of items": lambda n: (
        lambda: dg.hvp(lambda x: selected(x, n), (X,), (X,))
    ),
    "a Hessian-vector product of rows": lambda n: (
        lambda: dg.hvp(lambda x: entries(x, n), (np.ones((n, 4)),), (np.ones((n, 4)),))
    ),
    "a Jacobian of many rows": lambda n: (
        lambda: dg.jacobian(dg.delayed(lambda x: np.sum(x) * np.arange(1.0, n + 1)))(X)
    ),
    "gradients of items": lambda n: lambda: dg.per_item(term, floats(n))(X),
    "lazy gradients of many variables": lambda n: lambda: differentiated(n),
}

FAMILIES = {**GRADIENTS, **OTHERS}
