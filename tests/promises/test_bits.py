"""The same bits wherever a program runs: a program for each kind of task, at each place.

Numbers are over several decades, so that an addition in another order shows. Whether values are
right is seen elsewhere, in one thread.
"""

import contextlib

import autograd.numpy as np
import dask
import dask.array
import dask.bag
import numpy
import pytest
from comparisons import bits
from distributed import Client
from policies import Always, Never, moving, under
from samples import askew, decades
from solvers import solve

import daskgrad as dg
from daskgrad.autodiff.values.memory import canonical, of_its_own
from daskgrad.derivatives import in_line

X = numpy.linspace(0.2, 1.3, 4)
TANGENT = numpy.array([1.0, -0.5, 0.25, 3.0])
N = 19
ROWS = decades(N, 4, count=3)
NUMBERS = decades(N, seed=1, count=3)
LIST = list(ROWS)
RAGGED = [decades(2 + number % 3, seed=number, count=3) for number in range(N)]
SQUARE = decades(6, 8, count=3)
MATRIX = 4.0 * numpy.eye(4) + 0.1 * decades(4, 4, seed=2, count=3) / 100.0
IN_ORDER = numpy.asfortranarray(numpy.random.default_rng(0).normal(size=(24, 37)))
Y = numpy.random.default_rng(1).normal(size=37)
MANY = numpy.random.default_rng(2).normal(size=(5_000, 2))
HELD = dask.delayed(NUMBERS[:4])


# ------------------------------------------------------------------------------------ models


def dot(row, x):
    return np.dot(row, np.sin(x))


def wave(row, x):
    return row * np.sin(x)


def weighted(pair, x):
    return np.dot(pair[0], np.cos(x)) * pair[1]


def own(row, x):
    return np.sum(row * row * x)


def ragged(item, x):
    return np.sum(item * np.sin(x[0])) * x[1]


def slices(rows, x):
    return np.sum(np.dot(np.stack(rows), np.sin(x)))


def slices_of_pairs(pair, x):
    return np.sum(np.dot(pair[0], np.cos(x)) * pair[1])


def tree(row, x):
    return {"dot": np.dot(row, x), "wave": row * x}


def energy(x):
    return np.sum(np.sin(x) * ROWS[0] * x)


def scaled(x, row):
    return np.sum(np.sin(x) * row)


def parts(x):
    return {"half": 0.5 * x, "rest": [np.cos(x) * ROWS[1], np.sum(x * ROWS[2])], "size": 4}


def joined(both):
    return np.sum(both["half"] * both["rest"][0]) + both["rest"][1] / both["size"]


def vector(x):
    return np.dot(ROWS[:6], np.sin(x))


def table(x):
    return np.outer(ROWS[3], np.sin(x))


def products(rows):
    return np.dot(rows, Y[: rows.shape[1]]) + np.sum(rows, axis=1)


def noisy(x, generator):
    return np.sum(x * generator.normal(size=4) * ROWS[4])


def noisy_term(pair, x):
    return np.dot(pair[0] * pair[1].normal(size=4), x)


def step(state, x):
    return np.tanh(state + 0.1 * x * np.sum(state * ROWS[5] / 100.0))


def forced(state, row, x):
    state = np.tanh(state + x * row / 100.0)
    return state, np.sum(state * row)


def smooth(block, x):
    inner = block[1:-1, 1:-1]
    return inner + x[0] * np.sin(block[2:, 1:-1] / 100.0 - block[:-2, 1:-1] / 100.0)


def few(x, places):
    return np.sum(x[places] ** 2 * NUMBERS[: len(places), None])


def newton(a):
    x = numpy.ones_like(a)
    for _ in range(60):
        x = x - (x**3 + x - a) / (3.0 * x**2 + 1.0)
    return x


root = dg.implicit(newton, lambda x, a: x**3 + x - a)


def in_fortrans_order(row):
    return np.sum(np.tanh(row) * Y) + np.dot(row, row)


def in_fortrans_order_whole(W):
    return np.sum(np.tanh(W @ Y) ** 2) + np.sum(np.exp(0.1 * W))


# ---------------------------------------------------------------------------------- programs


def gradient(fun, *args, **options):
    return lambda: dg.value_and_grad(fun, **options)(*(args or (X,)))


def compute(*lazy):
    return lambda: dask.compute(*[make(dg.variable(X)) for make in lazy])


def pulled(fun, *cotangents):
    def run():
        value, pullback = dg.vjp(fun, X)
        return value, [pullback(cotangent) for cotangent in cotangents]

    return run


def pushed(fun):
    return lambda: dg.jvp(fun, (X,), (TANGENT,))


def second(fun):
    return lambda: dg.hvp(fun, (X,), (TANGENT,))


def lazy_gradient():
    x = dg.variable(X)
    return dask.compute(dg.differentiate(dg.sum([dg.delayed(scaled)(x, r) for r in LIST]), x))


def of_a_dask_array():
    a = dg.variable(dask.array.from_array(SQUARE, chunks=(3, 4)))
    return dask.compute(dg.differentiate(np.sum(np.sin(dg.array(a)) * SQUARE), a))


def looped(x):
    return dg.scan(step, x, 40, x, checkpoints=5)


def loop_with_outputs(x):
    last, outputs = dg.scan(forced, x, N, x, xs=ROWS, outputs="stack")
    return dg.delayed(np.sum)(last) + dg.delayed(lambda o: np.sum(o * o))(outputs)


def domain(x, fuse=1, checkpoints=None):
    grid = dg.grid(SQUARE, (2, 3))
    options = {"steps": 4, "fuse": fuse, "checkpoints": checkpoints, "boundary": "reflect"}
    blocks = dg.map_overlap(smooth, grid, x, **options)
    return dg.sum([dg.delayed(np.sum)(block) for block in blocks])


def of_grid_blocks(grid):
    last = dg.map_overlap(lambda b: b[1:-1, 1:-1] * b[2:, 2:] / 100.0, grid, steps=2)
    return dg.sum([dg.delayed(np.sum)(block) for block in last])


def chunked(x):
    array = dg.array(SQUARE, (2, 3)) * dg.array(np.ones(8), 3)
    rows = array[:4, :4].rechunk(2) @ dg.array(x, 2)
    return np.sum(rows) + np.sum(np.sin(array.map_blocks(np.cos)).sum(axis=0)) * np.max(rows)


def branches(x):
    y = dg.delayed(np.sin)(x)
    return dg.sum([dg.delayed(scaled)(y, row) for row in ROWS])


def selected(x):
    """Entries of outputs: selectors forward, adders of selections backward."""
    both = dg.delayed(parts)(x)
    rows = dg.delayed(table)(x)
    entries = [rows[0, 1], rows[1][2], both["rest"][1], dg.delayed(np.sum)(rows[1:3])]
    return dg.sum(entries) + dg.delayed(np.sum)(both["half"] * both["rest"][0])


def operators(x):
    y = dg.delayed(np.sin)(x)
    z = (x * y - 2.0 / (1.0 + y**2)) @ dg.delayed(table)(x) + (-y)
    return dg.delayed(np.sum)(z[::-1] * z) + z[1:3] @ y[:2]


def between(x):
    y = dg.delayed(np.sin)(numpy.exp(x) * ROWS[0])
    total = dg.map_sum(dot, LIST, numpy.tanh(x), grainsize=4)
    inner = numpy.concatenate([y, y[:2] * x[0]]).reshape(2, 3) / (1.0 + numpy.abs(total))
    return numpy.log(1.0 + (inner @ inner.T).sum() ** 2) + 0.1 * numpy.sum(x**2) + total


def strided(x):
    """Models whose values are views with gaps, of a tape and without one."""
    models = [
        dg.delayed(lambda x: (IN_ORDER * x[0])[:, ::2], name="views", keep=keep)
        for keep in ("auto", "recompute")
    ]
    return [dg.delayed(products)(model(x)) for model in models]


def stopped(x):
    return dg.delayed(lambda x, y: np.sum(x * y))(x, dg.stop_gradient(dg.delayed(vector)(x)[:4]))


def nested_sum(x):
    return dg.map_sum(dot, LIST, np.sin(x)) + dg.scan(step, x, 9, x)[0] + root(x)[1]


BLACK_BOX = dg.finite_difference(lambda x: numpy.dot(ROWS[6] / 100.0, numpy.sin(x)))
BLACK_BOX_TERM = dg.finite_difference(lambda row, x: numpy.dot(row / 100.0, numpy.sin(x)))
COMPLEX_STEP = dg.finite_difference(lambda x: numpy.sin(x) * ROWS[7], method="complex-step")

PROGRAMS = {
    "a node": gradient(lambda x: dg.delayed(energy)(x)),
    "a model alone": gradient(dg.delayed(energy)),
    "values": compute(lambda x: dg.delayed(energy)(x), lambda x: selected(x), branches),
    "a value of a sum": compute(lambda x: dg.map_sum(dot, ROWS, x, grainsize=3)),
    "several outputs": gradient(lambda x: dg.delayed(joined)(dg.delayed(parts)(x))),
    "selectors and adders": gradient(selected),
    "branches": gradient(branches),
    "operators": gradient(operators),
    "NumPy between models": gradient(between),
    "a tangent of NumPy between models": pushed(between),
    "a Hessian-vector product of NumPy between models": second(between),
    "lazy NumPy between models": compute(lambda x: dg.differentiate(between(x), x)),
    "a pullback of NumPy between models": pulled(lambda x: [between(x), numpy.exp(x)], [2.0, X]),
    "values with strides": pulled(strided, [np.full(24, 0.3)] * 2),
    "constants": gradient(lambda x: dg.delayed(scaled)(x, ROWS[1]) + dg.delayed(few)(MANY, [1, 2])),
    "delayed constants": gradient(lambda x: dg.delayed(scaled)(x, HELD)),
    "auxiliary nodes": gradient(lambda x: (branches(x), [dg.delayed(vector)(x)]), has_aux=True),
    "several arguments": gradient(
        lambda x, p: dg.delayed(lambda x, p: np.sum(x * p["w"]) * p["b"])(x, p),
        X,
        {"w": ROWS[0], "b": 0.3},
        argnums=(0, 1),
    ),
    "complex numbers": gradient(
        lambda z: dg.delayed(lambda z: np.real(np.sum(np.exp(1j * z) * ROWS[0])))(z), X + 0.5j
    ),
    "stopped": gradient(stopped),
    "a compiled model": gradient(
        lambda x: dg.map_sum(dg.delayed(dot, compile=True), ROWS, x, grainsize=9)
    ),
    "a bag": gradient(
        lambda x: dg.map_sum(ragged, dask.bag.from_sequence(RAGGED, npartitions=3), x)
    ),
    "rows of a dask array": gradient(
        lambda x: dg.map_sum(dot, dask.array.from_array(ROWS, chunks=(9, 4)), x)
    ),
    "delayed items": gradient(lambda x: dg.map_sum(dot, [HELD] * 3, x)),
    "nodes as items": gradient(
        lambda x: dg.map_sum(dot, [dg.delayed(wave)(row, x) for row in LIST[:9]], x, grainsize=2)
    ),
    "items that are differentiated": gradient(
        lambda rows, x: dg.map_sum(own, rows, x, grainsize=4), ROWS, X, argnums=(0, 1)
    ),
    "items of a list that are differentiated": gradient(
        lambda rows, x: dg.map_sum(own, rows, x), LIST, X, argnums=(0, 1)
    ),
    "nested sums, loops and roots": gradient(lambda x: dg.delayed(nested_sum)(x)),
    "a sum of a sum": gradient(lambda x: dg.map_sum(dot, ROWS, dg.map_sum(wave, ROWS / 100.0, x))),
    "a sum of nodes": gradient(lambda x: dg.sum([dg.delayed(scaled)(x, row) for row in ROWS])),
    "a compensated sum of nodes": gradient(
        lambda x: dg.sum([dg.delayed(scaled)(x, r) for r in LIST], summation="compensated")
    ),
    "a loop": gradient(lambda x: dg.delayed(np.sum)(looped(x))),
    "a loop with outputs": gradient(loop_with_outputs),
    "a grid": gradient(domain),
    "a grid with steps at once": gradient(lambda x: domain(x, fuse=2)),
    "a grid with checkpoints": gradient(lambda x: domain(x, checkpoints=2)),
    "a grid that is differentiated": gradient(of_grid_blocks, dg.grid(SQUARE, (2, 3))),
    "an array in chunks": gradient(chunked),
    "a dask array that is differentiated": of_a_dask_array,
    "a Jacobian forward": lambda: dg.jacobian(dg.delayed(vector), mode="forward")(X),
    "a Jacobian in reverse": lambda: dg.jacobian(
        lambda x: [dg.delayed(vector)(x), branches(x)], mode="reverse"
    )(X),
    "a Jacobian by structure": lambda: dg.jacobian(
        lambda x: [dg.delayed(vector)(x), branches(x), dg.delayed(wave)(x[:3], x[1])]
    )(X),
    "a tangent": pushed(lambda x: [selected(x), branches(x)]),
    "a tangent of a loop": pushed(loop_with_outputs),
    "a tangent of a grid": pushed(domain),
    "a pullback that is held": pulled(lambda x: dg.delayed(vector)(x), *ROWS[:6, :1] * np.ones(6)),
    "a pullback of many outputs": pulled(
        lambda x: {"a": branches(x), "b": dg.delayed(vector)(x)}, {"a": 2.0, "b": NUMBERS[:6]}
    ),
    "a Hessian-vector product": second(selected),
    "a Hessian-vector product of a loop": second(loop_with_outputs),
    "a Hessian-vector product of a grid": second(domain),
    "a Hessian": lambda: dg.hessian(selected)(X),
    "a Gauss-Newton product": lambda: dg.gnvp(
        dg.delayed(vector), dg.delayed(lambda r: np.sum(r**2)), (X,), (TANGENT,)
    ),
    "lazy gradients": lazy_gradient,
    "gradients as rows": gradient(
        lambda x: dg.delayed(few)(x, [7, 4_999, 7, 3]) + dg.delayed(few)(x, [3, 8]),
        MANY,
        sparse=True,
    ),
    "sums of gradients as rows": gradient(
        lambda x: dg.map_sum(lambda n, x: few(x, [n, 7, 9 * n]), list(range(N)), x), MANY
    ),
    "rules of one's own": gradient(
        lambda m, x: dg.delayed(np.sum)(dg.delayed(solve)(m, x)), MATRIX, X, argnums=(0, 1)
    ),
    "roots": gradient(lambda x: dg.map_sum(lambda row, x: np.dot(row, root(x)), ROWS, x)),
    "differences": gradient(lambda x: BLACK_BOX(x) + dg.delayed(np.sum)(COMPLEX_STEP(x))),
    "differences of terms": gradient(lambda x: dg.map_sum(BLACK_BOX_TERM, ROWS, x)),
    "a generator": gradient(
        lambda x: dg.delayed(noisy)(x, dg.random.generators(3, 1)[0]) + dg.delayed(energy)(x)
    ),
    "a model in Fortran's order": gradient(dg.delayed(in_fortrans_order_whole), IN_ORDER),
    "items in Fortran's order": gradient(lambda W: dg.map_sum(in_fortrans_order, W), IN_ORDER),
    "slices in Fortran's order": gradient(
        lambda W: dg.reduce_sum(lambda rows: np.sum(np.tanh(rows @ Y)), W, grainsize=7), IN_ORDER
    ),
    "entries in Fortran's order": gradient(
        lambda W: (
            dg.delayed(in_fortrans_order)(W[3])
            + dg.delayed(in_fortrans_order_whole)(W[::2] @ numpy.ones((37, 37)))
        ),
        IN_ORDER,
    ),
    "a loop's rows in Fortran's order": gradient(
        lambda W: dg.delayed(np.sum)(
            dg.scan(lambda s, w: np.tanh(s + 0.1 * w * np.sum(w * Y)), numpy.zeros(37), 24, xs=W)
        ),
        IN_ORDER,
    ),
    "a loop's state in Fortran's order": gradient(
        lambda W: dg.delayed(in_fortrans_order_whole)(
            dg.scan(lambda W: np.tanh(W + 0.01 * np.sum(W @ Y)), W, 20, checkpoints=4)
        ),
        IN_ORDER,
    ),
    "a grid in Fortran's order": gradient(
        lambda W: dg.sum(
            [
                dg.delayed(np.sum)(block)
                for block in dg.map_overlap(
                    lambda b: b[1:-1, 1:-1] + 0.1 * np.sin(b[2:, 1:-1]) * np.sum(b),
                    dg.grid(W, (3, 2)),
                    steps=3,
                    boundary="reflect",
                )
            ]
        ),
        IN_ORDER,
    ),
}

SUMS = {  # of items, which may be placed on the cluster
    "map_sum": (lambda items: gradient(lambda x: dg.map_sum(dot, items, x, grainsize=4)), LIST),
    "map_sum of trees": (
        lambda items: gradient(
            lambda x: dg.delayed(lambda t: t["dot"] + np.sum(t["wave"]))(dg.map_sum(tree, items, x))
        ),
        LIST,
    ),
    "map_sum of one item": (lambda items: gradient(lambda x: dg.map_sum(dot, items, x)), LIST[:1]),
    "map_sum of lists": (lambda items: gradient(lambda x: dg.map_sum(ragged, items, x)), RAGGED),
    "map_mean": (lambda items: gradient(lambda x: dg.map_mean(dot, items, x)), LIST),
    "compensated": (
        lambda items: gradient(lambda x: dg.map_sum(dot, items, x, summation="compensated")),
        LIST,
    ),
    "compensated arrays": (
        lambda items: pulled(
            lambda x: dg.map_sum(wave, items, x, grainsize=4, summation="compensated"), ROWS[0]
        ),
        LIST,
    ),
    "reduce_sum": (
        lambda items: gradient(lambda x: dg.reduce_sum(slices, items, x, grainsize=4)),
        LIST,
    ),
    "reduce_sum of a zip": (
        lambda items: gradient(
            lambda x: dg.reduce_sum(slices_of_pairs, dg.zip(items, NUMBERS), x, grainsize=4)
        ),
        ROWS,
    ),
    "a zip": (
        lambda items: gradient(lambda x: dg.map_sum(weighted, dg.zip(items, NUMBERS), x)),
        ROWS,
    ),
    "a zip with what is differentiated": (
        lambda items: gradient(
            lambda numbers, x: dg.map_sum(weighted, dg.zip(items, numbers), x),
            NUMBERS,
            X,
            argnums=(0, 1),
        ),
        ROWS,
    ),
    "a zip with NumPy on what is differentiated": (
        lambda items: gradient(
            lambda numbers, x: dg.map_sum(
                weighted, dg.zip(items, numpy.sin(numbers[1:])), x, grainsize=4
            ),
            decades(N + 1, seed=1),
            X,
            argnums=(0, 1),
        ),
        ROWS,
    ),
    "generators": (
        lambda items: gradient(
            lambda x: dg.map_sum(noisy_term, dg.zip(items, dg.random.generators(7, N)), x)
        ),
        LIST,
    ),
    "norms of gradients of items": (lambda items: lambda: dg.per_item(dot, items)(X), LIST),
    "gradients of items": (
        lambda items: lambda: dg.per_item(dot, items, gradient="full", grainsize=4)(X),
        LIST,
    ),
    "a sum and nodes": (
        lambda items: gradient(
            lambda x: dg.map_sum(dot, items, dg.delayed(np.cos)(x)) * 2.0 - dg.delayed(energy)(x)
        ),
        LIST,
    ),
    "a tangent of a sum": (
        lambda items: pushed(lambda x: dg.map_sum(dot, items, x, grainsize=4)),
        LIST,
    ),
    "a Jacobian of a sum": (
        lambda items: lambda: dg.jacobian(lambda x: dg.map_sum(wave, items, x))(X),
        LIST,
    ),
    "a held pullback of a sum": (
        lambda items: pulled(lambda x: dg.map_sum(wave, items, x), ROWS[0], ROWS[1]),
        LIST,
    ),
    "a Hessian-vector product of a sum": (
        lambda items: second(lambda x: dg.map_sum(dot, items, x, grainsize=4)),
        LIST,
    ),
}

POLICIES = {  # of programs with pullbacks that travel; also where they stay
    "a pullback that is held": PROGRAMS["a pullback that is held"],
    "branches": PROGRAMS["branches"],
    "map_sum": SUMS["map_sum"][0](LIST),
}


# ------------------------------------------------------------------------------------ places


@pytest.fixture(scope="module")
def place(shared_cluster, pool):
    """A function of a place's name, and a context in which programs run there."""
    cluster = Client(shared_cluster, set_as_default=False)

    def at(name):
        settings = {
            "sync": {"scheduler": "sync"},
            "moving": {"scheduler": moving},
            "threads": {"scheduler": "threads"},
            "processes": {"scheduler": "processes", "pool": pool},
            "in line": {"daskgrad.inline.seconds": 60.0},
            "in line, then threads": {"daskgrad.inline.seconds": 1e-9},
            "in line, beyond its time": {"daskgrad.inline.seconds": 1e-9},
        }
        stack = contextlib.ExitStack()
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(in_line, "TASK_SECONDS", 0.0)  # no task puts the end off
        # what is left goes to threads, or stays
        patch.setattr(in_line, "LARGE", numpy.inf if "beyond" in name else 0)
        if name == "cluster":
            stack.enter_context(cluster.as_current())
        else:
            stack.enter_context(dask.config.set(settings[name]))
        return stack

    with cluster:
        yield at


PLACES = ("moving", "threads", "processes", "cluster")
PLACES += ("in line", "in line, then threads", "in line, beyond its time")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_bits_everywhere(name, place):
    run = PROGRAMS[name]
    with place("sync"):
        expected = bits(run())
    for elsewhere in PLACES:
        with place(elsewhere):
            assert bits(run()) == expected, elsewhere


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_has_the_same_bits_everywhere(name, place):
    summed, items = SUMS[name]
    with place("sync"):
        expected = bits(summed(items)())
    for elsewhere in PLACES:
        with place(elsewhere):
            assert bits(summed(items)()) == expected, elsewhere
    for elsewhere in ("cluster", "in line"):
        with place(elsewhere), dg.place(items, 4) as shards:
            assert bits(summed(shards)()) == expected, f"placed, {elsewhere}"


@pytest.mark.parametrize("name", [*PROGRAMS, *SUMS])
def test_a_program_has_the_same_bits_again(name, place):
    """From the second time on it runs in the calling thread, without a graph if that can be."""
    run = PROGRAMS[name] if name in PROGRAMS else SUMS[name][0](SUMS[name][1])
    with place("sync"):
        expected = bits(run())
    with place("in line"), dask.config.set({"daskgrad.compile": False}):
        assert [bits(run()) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("policy", [Always(), Never()], ids=["tapes travel", "tapes stay"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_pullback_that_travels_has_the_same_bits(name, policy, place):
    run = POLICIES[name]
    with place("sync"):
        expected = bits(run())
    for elsewhere in ("moving", "processes", "cluster"):
        with place(elsewhere), under(policy):
            assert bits(run()) == expected, elsewhere


KINDS = ["f2", "f4", "f8", "c8", "c16", "i8", "i1"]
OF_KINDS = {
    "arrays": lambda item, x: item * np.sin(x),
    "numbers": lambda item, x: np.sum(item * np.sin(x)),
    "in the item's own": lambda item, x: (item * np.sin(x)).astype(item.dtype),
    "trees": lambda item, x: {"a": item * np.sin(x), "b": np.sum(x) * item[0]},
}


def sum_of_squares(value):
    leaves = value.values() if isinstance(value, dict) else [value]
    return sum([np.sum(np.real(leaf) ** 2 / 3.0 + np.imag(leaf) ** 2 / 7.0) for leaf in leaves])


@pytest.mark.parametrize("name", OF_KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_terms_of_several_dtypes(name, first):
    """The cut shows in no bit."""
    x = X[:3].astype("f4")
    for second in KINDS[KINDS.index(first) :]:
        is_mixed = len({numpy.dtype(kind).kind == "c" for kind in (first, second)}) > 1
        if name == "in the item's own" and "i" in first + second:
            continue  # integers have no derivative
        if name == "numbers" and is_mixed:
            continue  # real numbers beside complex ones: see ``docs/guarantees.md``
        kinds = [second if number % 3 else first for number in range(9)]
        items = [decades(3, seed=n, count=1).astype(kind) for n, kind in enumerate(kinds)]

        def run(grainsize, items=items):
            def fun(x):
                total = dg.map_sum(OF_KINDS[name], items, x, grainsize=grainsize)
                return dg.delayed(sum_of_squares)(total)

            return bits(dg.value_and_grad(fun)(x))

        with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0}):
            assert len({run(grainsize) for grainsize in (1, 4, 16)}) == 1, second


def test_another_order_would_show(place):
    """Else a table of equal bits would say little. All products are exact, and the order decides
    which of the terms is lost, on any processor."""

    def run(items):
        return dg.value_and_grad(lambda x: dg.map_sum(lambda item, x: item * x, items, x))(1.0)

    with place("sync"):
        assert bits(run([1e16, 1.0, -1e16, 1.0])) == bits((0.0, 0.0))
        assert bits(run([1e16, -1e16, 1.0, 1.0])) == bits((2.0, 2.0))


def test_copies_stay_in_fortrans_order():
    moved = askew(numpy.ascontiguousarray(IN_ORDER.T)).T
    for copy in (canonical(moved), of_its_own(IN_ORDER), of_its_own(moved)):
        assert copy.flags.fnc
        assert copy.flags.aligned
        numpy.testing.assert_array_equal(copy, IN_ORDER)
