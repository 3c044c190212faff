"""A call sees its operands as they were when it was called, whatever the model writes afterwards.

Each case is a model that writes into a plain array between two uses, and the model that gives each
use a copy of its own: value and derivatives are the same numbers, in every way of running.
"""

import copy
import ctypes
import gc
import operator
import tracemalloc
import types

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import pytest
import scipy.sparse

import daskgrad as dg

X = np.array([0.5, 1.2, 2.0])
START = np.array([1.5, 0.7, 1.1])
NEW = np.array([0.3, 2.5, 1.9])
DOUBLES = ctypes.POINTER(ctypes.c_double)


def set_real(array):
    array.real = NEW


def set_flat(array):
    array.flat = NEW


def set_part(array):
    head, _ = array[:1], array[1:]
    head[:] = 4.0


def by_memory(array):
    memoryview(array)[1] = 7.0


def by_iterator(array):
    with np.nditer(array, op_flags=["readwrite"]) as entries:
        for entry in entries:
            entry[...] = 2.0 * entry


def by_rows(array):
    for row in array.reshape(3, 1):
        row += 1.0


WRITES = {
    "a[:] =": lambda a: operator.setitem(a, slice(None), NEW),
    "a[...] = number": lambda a: operator.setitem(a, ..., 0.3),
    "a[1] =": lambda a: operator.setitem(a, 1, 9.0),
    "a[mask] =": lambda a: operator.setitem(a, a > 1.0, 0.2),
    "a[list] =": lambda a: operator.setitem(a, [0, 2], [8.0, 9.0]),
    "a += b": lambda a: operator.iadd(a, NEW),
    "a *= 2": lambda a: operator.imul(a, 2.0),
    "a -= b": lambda a: operator.isub(a, NEW),
    "a /= 2": lambda a: operator.itruediv(a, 2.0),
    "a **= 2": lambda a: operator.ipow(a, 2.0),
    "a %= 1": lambda a: operator.imod(a, 1.0),
    "a //= 1": lambda a: operator.ifloordiv(a, 0.4),
    "out= by name": lambda a: np.multiply(NEW, 2.0, out=a),
    "out= by place": lambda a: np.exp(NEW, a),
    "out= of cumsum": lambda a: np.cumsum(NEW, out=a),
    "out= of dot": lambda a: np.dot(np.diag(NEW), NEW, out=a),
    "out= of take": lambda a: np.take(NEW, [2, 0, 1], out=a),
    "out= of clip": lambda a: np.clip(a, 0.0, 1.0, out=a),
    "sort": lambda a: a.sort(),
    "partition": lambda a: a.partition(1),
    "fill": lambda a: a.fill(3.0),
    "put": lambda a: a.put([1], 5.0),
    "np.put": lambda a: np.put(a, [0, 1], [5.0, 6.0]),
    "copyto": lambda a: np.copyto(a, NEW),
    "place": lambda a: np.place(a, a > 1.0, [9.0]),
    "putmask": lambda a: np.putmask(a, a > 1.0, NEW),
    "put_along_axis": lambda a: np.put_along_axis(a, np.array([2]), 5.0, 0),
    "np.add.at": lambda a: np.add.at(a, [0, 0], 1.0),
    "nan_to_num": lambda a: np.nan_to_num(np.divide(a, 0.0, out=a), copy=False, posinf=2.0),
    "shuffle": lambda a: np.random.default_rng(3).shuffle(a),
    "random out=": lambda a: np.random.default_rng(3).standard_normal(out=a),
    "fill_diagonal": lambda a: np.fill_diagonal(a.reshape(1, 3), 6.0),
    "copyto of a view": lambda a: np.copyto(a.reshape(3, 1), 6.0),
    "setitem": lambda a: a.__setitem__(0, 6.0),
    "a.T[:] =": lambda a: operator.setitem(a.T, slice(None), NEW),
    "a[::-1] =": lambda a: operator.setitem(a[::-1], slice(None), NEW),
    "reshaped": lambda a: operator.setitem(a.reshape(3, 1), 0, 5.0),
    "ravelled": lambda a: operator.setitem(a.ravel(), 0, 5.0),
    "seen as integers": lambda a: operator.setitem(a.view(np.int64), 0, 4611686018427387904),
    "a.real =": set_real,
    "a.flat =": set_flat,
    "a.flat[1] =": lambda a: operator.setitem(a.flat, 1, 6.0),
    "a part": set_part,
    "memoryview": by_memory,
    "nditer": by_iterator,
    "rows": by_rows,
    "byteswap": lambda a: a.byteswap(inplace=True).byteswap(inplace=True).fill(2.0),
    "np.frombuffer": lambda a: operator.setitem(np.frombuffer(a), 0, 6.0),
    "asarray": lambda a: operator.setitem(np.asarray(a), 0, 6.0),
    "as_strided": lambda a: operator.setitem(np.lib.stride_tricks.as_strided(a, (2,)), 0, 6.0),
    "setfield": lambda a: a.setfield(6.0, np.float64),
    "ctypes": lambda a: a.ctypes.data_as(DOUBLES).__setitem__(0, 6.0),
}


USES = {
    "a * x": lambda a, x: np.sum(a * x**2),
    "x * a": lambda a, x: np.sum(x**2 * a),
    "x / a": lambda a, x: np.sum(x**2 / a),
    "a / x": lambda a, x: np.sum(a / x),
    "x**a": lambda a, x: np.sum(x**a),
    "a**x": lambda a, x: np.sum(a**x),
    "x - a": lambda a, x: np.sum((x - a) ** 2),
    "a @ x": lambda a, x: a @ x,
    "x @ a": lambda a, x: x @ a,
    "dot": lambda a, x: np.dot(a, x**2),
    "matrix": lambda a, x: np.sum((np.outer(a, a) + np.eye(3)) @ x),
    "einsum": lambda a, x: np.einsum("i,i->", a, x**2),
    "einsum of three": lambda a, x: np.einsum("i,i,i->", a, x, x),
    "tensordot": lambda a, x: np.tensordot(a, x**2, 1),
    "inner": lambda a, x: np.inner(a, x**2),
    "outer": lambda a, x: np.sum(np.outer(a, x) ** 2),
    "kron": lambda a, x: np.sum(np.kron(a, x) ** 2),
    "convolve": lambda a, x: np.sum(np.convolve(a, x**2)),
    "concatenate": lambda a, x: np.sum(np.concatenate([a, x]) ** 3),
    "stack": lambda a, x: np.prod(np.stack([a, x])),
    "where's condition": lambda a, x: np.sum(np.where(a > 1.0, x, x**2)),
    "where's mask": lambda a, x: np.sum(np.where(a, x, x**2)),
    "where's choice": lambda a, x: np.sum(np.where(x > 1.0, a, x) * x),
    "maximum": lambda a, x: np.sum(np.maximum(a, x) ** 2),
    "arctan2": lambda a, x: np.sum(np.arctan2(a, x)),
    "hypot": lambda a, x: np.sum(np.hypot(a, x)),
    "clip": lambda a, x: np.sum(np.clip(x, 0.5 * a, 2.0 * a) ** 2),
    "average": lambda a, x: np.average(x**2, weights=a),
    "solve": lambda a, x: np.sum(np.linalg.solve(np.diag(a) + 1.0, x)),
    "view": lambda a, x: np.sum(a[::-1] * x**2),
    "part": lambda a, x: np.sum(a[1:] * x[1:] ** 2),
    "broadcast": lambda a, x: np.sum(np.broadcast_to(a, (2, 3)) * x**2),
    "diagonal": lambda a, x: np.sum(np.diagonal(a[:, None] * np.eye(3)) * x**2),
    "windows": lambda a, x: np.sum(np.lib.stride_tricks.sliding_window_view(a, 2) * x[:2]),
    "logaddexp": lambda a, x: np.sum(np.logaddexp(a, x)),
    "polyval": lambda a, x: np.sum(np.polyval(a, x)),
    "interp": lambda a, x: np.sum(np.interp(x, [0.0, 1.0, 4.0], a)),
    "autograd": lambda a, x: np.sum(autograd.grad(lambda y: anp.sum(a * y**3))(x)),
}


def weights(get, own):
    """A model that fills an array again before each use; ``own`` makes what a use gets."""

    def model(x):
        array, total = get(), 0.0
        for n in range(3):
            array[:] = n + 1.0
            total = total + np.sum(own(array) * x**2)
        return total

    return model


GLOBAL = np.ones(3)


def of_global(own):
    def model(x):
        total = 0.0
        for n in range(3):
            GLOBAL[:] = n + 1.0
            total = total + np.sum(own(GLOBAL) * x**2)
        return total

    return model


def of_closure(own):
    array = np.ones(3)
    return weights(lambda: array, own)


def of_attribute(own):
    holder = types.SimpleNamespace(array=np.ones(3))
    return weights(lambda: holder.array, own)


def of_default(own):
    def model(x, array=np.ones(3)):  # noqa: B008
        return weights(lambda: array, own)(x)

    return model


def of_view(own):
    array = np.ones(6)
    return weights(lambda: array[::2], own)


def of_index(own):
    def model(x):
        array, mask, total = np.zeros(2, int), np.zeros(3, bool), 0.0
        for n in range(3):
            array[:], mask[n] = n, True
            total = total + np.sum(x[own(array)] ** (n + 1)) + np.sum(x[own(mask)] ** 3)
            total = total + np.sum(np.outer(x, x)[own(array), 1:]) * n
        return total

    return model


def of_list(own):
    def model(x):
        places, total = [0, 0], 0.0
        for n in range(3):
            places[0] = n
            total = total + np.sum(x[own(places)]) * (n + 1.0) ** 2
        return total

    return model


def of_sparse(own):
    def model(x):
        matrix, total = scipy.sparse.csr_array(np.diag(START)), 0.0
        for n in range(3):
            matrix.data[:] = n + 1.0
            total = total + np.sum(own(matrix) @ x**2)
        return total

    return model


def of_rule(own):
    rule = dg.custom_vjp(lambda a, x: np.sum(a * x**2))
    rule.defvjp(
        lambda a, x: (np.sum(a * x**2), (a, x)),
        lambda pair, g: (g * pair[1] ** 2, g * 2.0 * pair[0] * pair[1]),
    )
    rule.defjvp(lambda p, t: (np.sum(p[0] * p[1] ** 2), np.sum(2.0 * p[0] * p[1] * t[1])))

    def model(x):
        array, total = np.ones(3), 0.0
        for n in range(3):
            array[:] = n + 1.0
            total = total + rule(own(array), x)
        return total

    return model


def of_residuals(own):
    array = np.zeros(3)
    rule = dg.custom_vjp(lambda x, n: np.sum(n * x**2))

    def forward(x, n):
        array[:] = 2.0 * n * x
        return np.sum(n * x**2), own(array)

    rule.defvjp(forward, lambda residual, g: (g * residual, None))
    rule.defjvp(lambda p, t: (np.sum(p[1] * p[0] ** 2), np.sum(2.0 * p[1] * p[0] * t[0])))
    return lambda x: sum([rule(x, n + 1.0) for n in range(3)])


def of_root(own):
    root = dg.implicit(lambda a, x, b: np.sqrt(a * b * x), lambda y, a, x, b: y**2 - a * b * x)

    def model(x):
        array, total = np.ones(3), 0.0
        for n in range(3):
            array[:] = n + 1.0
            total = total + np.sum(root(own(array), x, b=own(array)))
        return total

    return model


def of_loop(own):
    def model(x):
        array, rows, total = np.ones(3), np.ones((4, 3)), 0.0
        for n in range(3):
            array[:], rows[:] = 0.5 * n, 0.1 * n
            step = lambda s, row, a: s * a + row  # noqa: E731
            total = total + np.sum(dg.scan(step, x, 4, own(array), xs=own(rows)))
        return total

    return model


def of_inner_sum(own):
    def model(x):
        array, total = np.ones(3), 0.0
        for n in range(3):
            array[:] = n + 1.0
            term = lambda item, x, a: item * np.sum(a * x**2)  # noqa: E731
            total = total + dg.map_sum(term, [1.0, 2.0], x, own(array))
        return total

    return model


HOLDERS = [of_global, of_closure, of_attribute, of_default, of_view, of_index, of_list, of_sparse]
HOLDERS += [of_rule, of_residuals, of_root, of_loop, of_inner_sum]


def models(use, write):
    """The model, and the model in which no call sees an array that changes."""

    def model(own):
        def fun(x):
            array = START.copy()
            total = use(own(array), x)
            write(array)
            return total + 2.0 * use(own(array), x)

        return fun

    return model(lambda array: array), model(lambda array: array.copy())


def repeated(call):
    """The last answer of so many calls that the model has become a program."""
    return [call() for _ in range(13)][-1]


def in_one_process(fun):
    """Derivatives in the ways of one model."""
    tape, program = dg.delayed(fun, compile=False), dg.delayed(fun, compile=True)
    yield dg.value_and_grad(tape)(X)
    yield repeated(lambda: dg.value_and_grad(program)(X))
    yield dg.jvp(tape, (X,), (NEW,))


def second_order(fun):
    yield dg.hvp(dg.delayed(fun, compile=False), (X,), (NEW,))


def in_sums(fun):
    """A batch; an objective; tasks in threads."""
    tape = dg.delayed(fun, compile=False)
    terms = dg.value_and_grad(lambda x: dg.map_sum(lambda n, x: n * fun(x), [0.5, 0.5, 1.0], x))
    yield repeated(lambda: terms(X))
    twice = dg.value_and_grad(lambda x: tape(x) + 2.0 * tape(2.0 * x))
    yield repeated(lambda: twice(X))
    with dask.config.set({"daskgrad.inline.seconds": 0, "scheduler": "threads"}):
        yield dg.value_and_grad(lambda x: dg.delayed(fun)(x))(X)


def require_same(ways, model, plain):
    for found, expected in zip(ways(model), ways(plain), strict=True):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("write", WRITES)
def test_a_write_does_not_change_what_a_call_has_seen(write):
    model, plain = models(USES["a * x"], WRITES[write])
    require_same(in_one_process, model, plain)
    require_same(second_order, model, plain)


@pytest.mark.parametrize("use", USES)
def test_no_call_sees_a_later_write(use):
    model, plain = models(USES[use], WRITES["a[:] ="])
    require_same(in_one_process, model, plain)
    require_same(second_order, model, plain)


@pytest.mark.parametrize("make", HOLDERS)
def test_whoever_holds_the_array(make):
    model, plain = make(lambda array: array), make(copy.copy)
    require_same(in_one_process, model, plain)
    require_same(in_sums, model, plain)
    if make not in (of_rule, of_residuals):
        require_same(second_order, model, plain)


def test_a_held_pullback_is_of_the_call():
    array = np.ones(3)
    _, pullback = dg.vjp(dg.delayed(lambda x: array * x**2, compile=False), X)
    array[:] = 5.0
    np.testing.assert_array_equal(pullback(np.ones(3))[0], 2.0 * X)


# ------------------------------------------------------------------------------- large arrays

LARGE = 10_000
LONG = np.linspace(0.1, 1.0, LARGE)


def in_parts(x):
    array, total = np.ones(LARGE), 0.0
    part = array[:10]
    for n in range(3):
        part[:] = n + 1.0
        total = total + np.sum(array * x**2)
    return total


def by_add_at(x):
    array = np.ones(LARGE)
    total = np.sum(array * x**2)
    np.add.at(array, [0], 1.0)
    return total + np.sum(array * x**2)


def through_views(x):
    array, total = np.ones((2, LARGE)), 0.0
    for n in range(3):
        array[:] = n + 1.0
        total = total + np.dot(array.T[:, 0], x**2)
    return total


def by_a_helper(x):
    array, total = np.ones(LARGE), 0.0
    for n in range(3):
        array[:] = n + 1.0
        total = total + USES["a * x"](array, x)
    return total


SHOWN = np.ones(LARGE)
PART = SHOWN[:10]


def by_another_global(x):
    total = 0.0
    for n in range(3):
        PART[:] = n + 1.0
        total = total + np.sum(SHOWN * x**2)
    return total


@pytest.mark.parametrize(
    ("model", "first"),
    [
        *((in_parts, 12.0), (by_add_at, 6.0), (through_views, 12.0), (by_a_helper, 12.0)),
        (by_another_global, 12.0),
    ],
)
def test_large_arrays_that_others_may_hold_are_copied(model, first):
    gradient = dg.grad(dg.delayed(model, compile=False))(LONG)
    np.testing.assert_allclose(gradient[0], first * LONG[0], rtol=1e-12)
    _, tangent = dg.jvp(dg.delayed(model, compile=False), (LONG,), (np.eye(1, LARGE)[0],))
    np.testing.assert_allclose(tangent, first * LONG[0], rtol=1e-12)


HELD = np.ones(LARGE)


def refilled(x):
    total = 0.0
    for n in range(3):
        HELD[:] = n + 1.0
        total = total + np.sum(HELD * x**2)
    return total


def test_a_write_into_a_locked_array_is_an_error_that_says_what_to_write():
    with pytest.raises(ValueError, match="read-only") as caught:
        dg.grad(dg.delayed(refilled, compile=False))(LONG)
    notes = "\n".join(caught.value.__notes__)
    assert f"{__file__}:{refilled.__code__.co_firstlineno + 4}" in notes
    assert "buffer = buffer.copy()" in notes
    assert HELD.flags.writeable  # though the traceback lives


def test_locks_end_with_the_last_of_several_traces():
    model = dg.delayed(lambda x: HELD * x**2, compile=False)
    _, one = dg.vjp(model, LONG)
    _, other = dg.vjp(model, LONG)
    assert not HELD.flags.writeable
    dg.grad(dg.delayed(lambda x: np.sum(HELD * x), compile=False))(LONG)
    del one
    gc.collect()
    assert not HELD.flags.writeable
    other(np.ones(LARGE))
    del other
    gc.collect()
    assert HELD.flags.writeable


def test_copies_are_shared_while_an_array_is_unchanged():
    array = np.ones(4_000)

    def model(x):
        for _ in range(500):
            x = x * array[:]
        return np.sum(x)

    tracemalloc.start()
    dg.grad(dg.delayed(model, compile=False, keep="tape"))(0.5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000 * array.nbytes  # the values alone take half of that


# ------------------------------------------------------------- functions that are evaluated again


@pytest.mark.parametrize("kind", ["loop", "root"])
def test_a_function_that_runs_again_must_refer_to_the_same_arrays(kind):
    def call(a, x):
        if kind == "loop":
            step = lambda s: (0.5 * s, np.sum(a * s**2))  # noqa: E731
            return dg.scan(step, x, 4, outputs="sum")[1]
        return np.sum(dg.implicit(lambda x: np.sqrt(a * x), lambda y, x: y**2 - a * x)(x))

    def model(x):
        array, total = np.ones(3), 0.0
        for n in range(3):
            array[:] = n + 1.0
            total = total + call(array, x)
        return total

    with pytest.raises(dg.NondeterministicModelError, match="pass the array as an argument"):
        dg.jvp(dg.delayed(model, compile=False), (X,), (NEW,))
    if kind == "loop":
        with pytest.raises(dg.NondeterministicModelError, match="pass the array as an argument"):
            dg.grad(dg.delayed(model, compile=False))(X)
