"""scan: values and derivatives of loops are those of plain loops, with the same bits everywhere."""

import functools

import autograd
import autograd.numpy as np
import dask
import numpy
import pytest
from autograd.misc import flatten
from comparisons import assert_close, assert_same
from numpy.testing import assert_allclose
from optree import tree_leaves, tree_map
from probes import peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values.descriptions import NondeterministicModelError

N = 23
U = numpy.linspace(-1.0, 1.0, 12)
C = numpy.linspace(0.5, 0.9, 12)
XS = {"force": numpy.sin(numpy.arange(N * 12.0)).reshape(N, 12), "weight": numpy.linspace(0, 1, N)}
LIMITS = [{}, {"checkpoints": 1}, {"checkpoints": 3}, {"checkpoints": N}, {"memory": "300 B"}]


def diffuse(u, c):
    return u + 0.2 * c * (np.roll(u, 1) - 2.0 * u + np.roll(u, -1)) + 0.01 * np.sin(u)


def forced(u, x, c):
    after = diffuse(u, c) + x["force"] * x["weight"]
    return after, {"energy": np.sum(after**2), "edge": after[:2]}


def square(u):
    return np.sum(u**2)


def weigh(u, outputs):
    weights = np.arange(1.0, 1.0 + np.size(outputs["energy"]))
    return np.sum(u) + np.sum(outputs["energy"] * weights) * 1e-3 + np.sum(outputs["edge"] ** 3)


def plain(point):
    u = point["u"]
    for _ in range(N):
        u = diffuse(u, point["c"])
    return square(u)


def plainly_forced(point, how):
    u, outputs = point["u"], []
    for number in range(N):
        u, output = forced(u, {name: xs[number] for name, xs in point["xs"].items()}, point["c"])
        outputs.append(output)
    join = np.array if how == "stack" else sum
    return weigh(u, {name: join([output[name] for output in outputs]) for name in outputs[0]})


def loop(point, how=None, call=dg.delayed, **options):
    if how is None:
        return call(square)(dg.scan(diffuse, point["u"], N, point["c"], **options))
    last = dg.scan(forced, point["u"], N, point["c"], xs=point["xs"], outputs=how, **options)
    return call(weigh)(*last)


def loop_within(point, how=None, **options):
    return dg.delayed(lambda point: loop(point, how, lambda model: model, **options))(point)


POINT = {"u": U, "c": C}
FORCED = {**POINT, "xs": XS}
PROGRAMS = {  # a program, the same in a model, a plain loop, and where
    "plain": (loop, loop_within, plain, POINT),
    **{
        how: (
            functools.partial(loop, how=how),
            functools.partial(loop_within, how=how),
            functools.partial(plainly_forced, how=how),
            FORCED,
        )
        for how in ("stack", "sum")
    },
}


def by_autograd(fun, point):
    vector, unflatten = flatten(point)
    gradient = autograd.grad(lambda vector: fun(unflatten(vector)))
    return fun(point), unflatten(gradient(vector))


# ------------------------------------------------------------------------------ first derivatives


pytestmark = pytest.mark.usefixtures("synchronous")


@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient_are_those_of_a_plain_loop(name):
    program, _, fun, point = PROGRAMS[name]
    assert_close(dg.value_and_grad(program)(point), by_autograd(fun, point), 1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_the_same_for_every_schedule_and_scheduler(name, every_scheduler):
    program, within, _, point = PROGRAMS[name]
    variable = dg.variable(point)
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(program)(point)
        assert_same(dask.compute(program(variable), within(variable)), [expected[0]] * 2)
        for options in LIMITS:
            for loop in (program, within):
                gradient = dg.value_and_grad(lambda p, f=loop, o=options: f(p, **o))
                assert_same(gradient(point), expected)
    gradient = dg.value_and_grad(lambda p: program(p, checkpoints=3))
    for result in every_scheduler(lambda: gradient(point)).values() if name == "stack" else ():
        assert_same(result, expected)


def test_only_what_is_asked_for_is_differentiated():
    forced_by = dg.grad(lambda xs: loop({**POINT, "xs": xs}, "stack"))(XS)
    shared = dg.grad(lambda c: loop({"u": U, "c": c, "xs": XS}, "stack"))(C)
    start = dg.grad(lambda u: loop({"u": u, "c": C, "xs": XS}, "stack"))(U)
    whole = dg.grad(lambda p: loop(p, "stack"))(FORCED)
    assert_same([forced_by, shared, start], [whole["xs"], whole["c"], whole["u"]])


def test_one_output_alone():
    def energy(c):
        return dg.scan(forced, U, N, c, xs=XS, outputs="sum")[1]["energy"]

    def plainly(c):
        u, total = U, 0.0
        for number in range(N):
            u, output = forced(u, {name: xs[number] for name, xs in XS.items()}, c)
            total = total + output["energy"]
        return total

    assert_allclose(dg.grad(energy)(C), autograd.grad(plainly)(C), rtol=1e-12)


def test_states_may_be_pytrees_of_numbers_and_nodes():
    def spring(state, k):
        return {
            "x": state["x"] + 0.1 * state["v"],
            "v": state["v"] - 0.1 * k * state["x"],
            "count": state["count"] + 1,
        }

    def end(x, k):
        start = {"x": dg.delayed(np.cos)(x), "v": 0.0, "count": 0}
        return dg.scan(spring, start, 20, k)

    value, gradient = dg.value_and_grad(lambda p: end(p[0], p[1])["x"])((0.3, 2.0))

    def plainly(p):
        x, v = np.cos(p[0]), 0.0
        for _ in range(20):
            x, v = x + 0.1 * v, v - 0.1 * p[1] * x
        return x

    wanted = by_autograd(lambda p: plainly(p), numpy.array([0.3, 2.0]))
    assert_close((value, numpy.array(gradient)), wanted, 1e-13)
    assert dask.compute(end(0.3, 2.0)["count"])[0] == 20


def test_a_loop_may_be_a_part_of_a_graph():
    def both(p):
        first = dg.scan(diffuse, p["u"], 5, p["c"])
        second = dg.scan(diffuse, first, 7, dg.delayed(np.sin)(p["c"]))
        return dg.delayed(square)(second) + dg.delayed(square)(first)

    def plainly(p):
        u = p["u"]
        for _ in range(5):
            u = diffuse(u, p["c"])
        first = u
        for _ in range(7):
            u = diffuse(u, np.sin(p["c"]))
        return square(u) + square(first)

    assert_close(dg.value_and_grad(both)(POINT), by_autograd(plainly, POINT), 1e-13)


def test_the_state_may_be_shared_too():
    def decay(u, start):
        return 0.9 * u + 0.1 * start

    result = dg.grad(lambda u: dg.delayed(square)(dg.scan(decay, u, 9, u)))(U)
    assert_allclose(result, 2.0 * U, rtol=1e-12)


def test_a_pullback_may_be_used_again():
    value, pullback = dg.vjp(lambda p: dg.scan(diffuse, p["u"], N, p["c"], checkpoints=3), POINT)
    (first,) = pullback(numpy.ones(12))
    (second,) = pullback(numpy.ones(12))
    (third,) = pullback(2.0 * value)
    assert_same(first, second)
    assert_same(third, dg.grad(loop)(POINT))


def test_gradients_of_sums_over_many_loops():
    def shot(start, c):
        return square(dg.scan(diffuse, start, N, c, checkpoints=4))

    starts = [U * factor for factor in (0.5, 1.0, 1.5)]
    result = dg.value_and_grad(lambda c: dg.map_sum(shot, starts, c))(C)
    wanted = by_autograd(lambda c: sum([plain({"u": start, "c": c}) for start in starts]), C)
    assert_close(result, wanted, 1e-13)


# ----------------------------------------------------------------------------- other derivatives


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_and_hessian_products(name, random):
    program, within, _, point = PROGRAMS[name]
    tangent = tree_map(lambda leaf: random.normal(size=numpy.shape(leaf)), point)
    gradient = dg.grad(program)(point)
    slope = sum(map(numpy.vdot, tree_leaves(gradient), tree_leaves(tangent)))
    outer = dg.jvp(lambda p: program(p, checkpoints=4), (point,), (tangent,))
    inner = dg.jvp(lambda p: within(p, checkpoints=4), (point,), (tangent,))
    assert_allclose([outer[1], inner[1]], [slope, slope], rtol=1e-11)
    (_,), (product,) = dg.hvp(lambda p: program(p, checkpoints=4), (point,), (tangent,))
    (_,), (nested,) = dg.hvp(lambda p: within(p), (point,), (tangent,))
    assert_close(nested, product, 1e-13)
    assert_allclose(differences_of_gradient(program, point, tangent), flat(product), rtol=2e-6)


def flat(tree):
    return numpy.concatenate([numpy.ravel(leaf) for leaf in tree_leaves(tree)])


def differences_of_gradient(program, point, tangent, step=1e-5):
    ahead = tree_map(lambda p, t: p + step * t, point, tangent)
    behind = tree_map(lambda p, t: p - step * t, point, tangent)
    pair = flat(dg.grad(program)(ahead)), flat(dg.grad(program)(behind))
    return (pair[0] - pair[1]) / (2.0 * step)


@pytest.mark.parametrize("is_within", [False, True])
def test_leaves_without_derivative_go_along(is_within):
    """Counters, strings and None in the state, integers in xs and outputs; in all modes."""

    def step(state, number):
        u = np.sin(state["u"]) * (1 + number)
        after = {"u": u, "count": state["count"] + 1, "name": state["name"], "nothing": None}
        return after, {"number": number, "u": u}

    def value(last, outputs):
        return np.sum(last["u"] ** 2) + np.sum(outputs["u"]) * last["count"]

    def loop(u):
        start = {"u": u, "count": 0, "name": "name", "nothing": None}
        return dg.scan(step, start, 4, xs=numpy.arange(4), outputs="stack", checkpoints=2)

    def plainly(u):
        total = 0.0
        for number in range(4):
            u = np.sin(u) * (1 + number)
            total = total + np.sum(u)
        return np.sum(u**2) + 4 * total

    if is_within:
        program = dg.delayed(lambda u: value(*loop(u)))
    else:
        program = lambda u: dg.delayed(value)(*loop(u))  # noqa: E731
    gradient = autograd.grad(plainly)(U)
    assert_close(dg.value_and_grad(lambda u: program(u))(U), (plainly(U), gradient), 1e-13)
    _, slope = dg.jvp(lambda u: program(u), (U,), (C,))
    assert_allclose(slope, numpy.dot(gradient, C), rtol=1e-12)
    _, (product,) = dg.hvp(lambda u: program(u), (U,), (C,))
    assert_allclose(product, autograd.hessian_vector_product(plainly)(U, C), rtol=1e-11)


def test_derivatives_within_a_model_may_be_nested():
    def curvature(c):
        def value(c):
            return square(dg.scan(diffuse, U, 5, c, checkpoints=2))

        return np.sum(autograd.grad(value)(c) ** 2)

    def plainly(c):
        def value(c):
            u = U
            for _ in range(5):
                u = diffuse(u, c)
            return square(u)

        return np.sum(autograd.grad(value)(c) ** 2)

    result = dg.value_and_grad(lambda c: dg.delayed(curvature)(c))(C)
    assert_close(result, by_autograd(plainly, C), 1e-13)


@pytest.mark.parametrize("inner", [None, "sum", "stack"])
@pytest.mark.parametrize("outer", ["sum", "stack"])
def test_loops_in_loops_stay_right_at_each_evaluation(inner, outer):
    """The last state has no cotangent, so that a step's program leaves its pullback to the tape."""

    def step(u, c):
        return diffuse(u, c) if inner is None else (diffuse(u, c), u**2)

    def block(u, row, c):
        result = dg.scan(step, u, 3, c, outputs=inner)
        u, output = (result, 0.0) if inner is None else result
        return u, square(u - row) + np.sum(output)

    def plainly(c):
        u, total = U, 0.0
        for row in XS["force"][:4]:
            for _ in range(3):
                total, u = total + (0.0 if inner is None else square(u)), diffuse(u, c)
            total = total + square(u - row)
        return total

    def loop(c):
        return dg.scan(block, U, 4, c, xs=XS["force"][:4], outputs=outer)[1]

    expected = plainly(C), autograd.grad(plainly)(C)
    of_loop = dg.value_and_grad(lambda c: dg.delayed(np.sum)(loop(c)))
    of_sum = dg.value_and_grad(lambda c: dg.map_sum(lambda item, c: np.sum(loop(c)), [0], c))
    for _ in range(14):
        assert_close(of_loop(C), expected, 1e-12)
        assert_close(of_sum(C), expected, 1e-12)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_steps_of_other_libraries(backend):
    library = pytest.importorskip(backend)
    sin = library.numpy.sin if backend == "jax" else library.sin

    def step(u, c):
        return u + 0.1 * c * sin(u)

    def plainly(p):
        u = p["u"]
        for _ in range(N):
            u = u + 0.1 * p["c"] * np.sin(u)
        return square(u)

    model = dg.delayed(step, backend=backend)
    result = dg.value_and_grad(
        lambda p: dg.delayed(square)(dg.scan(model, p["u"], N, p["c"], checkpoints=3))
    )(POINT)
    assert_close(result, by_autograd(plainly, POINT), 1e-6)


# ------------------------------------------------------------------------------- cost and trust


class Counted:
    def __init__(self):
        self.runs = 0

    def __call__(self, u):
        self.runs += 1
        return np.sin(u) * 1.001


def looping(step, steps, is_within):
    """The sum of squares of the last state of a loop, which is within a model or made of nodes."""

    def within(u, **options):
        return square(dg.scan(step, u, steps, **options))

    def outside(u, **options):
        return dg.delayed(square)(dg.scan(step, u, steps, **options))

    return dg.delayed(within, compile=False) if is_within else outside


RUNS = [({"checkpoints": 3}, 175), ({"checkpoints": 40}, 80), ({"memory": 3 * 96}, 175)]


@pytest.mark.parametrize(("options", "runs"), RUNS)
@pytest.mark.parametrize("is_within", [False, True])
def test_steps_run_as_often_as_the_schedule_says(options, runs, is_within):
    step = Counted()
    program = looping(dg.delayed(step, compile=False, name="counted"), 40, is_within)
    dg.value_and_grad(lambda u: program(u, **options))(U)
    assert step.runs == runs


@pytest.mark.parametrize("is_within", [False, True])
def test_memory_is_that_of_the_states_that_are_kept(is_within):
    size, steps = 2**15, 100  # a quarter of a megabyte each

    def step(u):
        return np.sin(u)

    def peak(kept):
        gradient = dg.value_and_grad(lambda u: program(u, checkpoints=kept))
        return peak_bytes(lambda: gradient(start)) / start.nbytes

    model = dg.delayed(step, compile=False, name="sine")  # when it is compiled, a clock decides
    program, start = looping(model, steps, is_within), numpy.full(size, 0.5)
    assert peak(20) < 20 + 15
    assert peak(steps) > steps  # what keeps all is seen as such


@pytest.mark.parametrize("is_within", [False, True])
def test_a_step_that_is_not_deterministic_is_an_error(is_within):
    def noisy(u):
        return u + numpy.random.default_rng().normal(size=12)

    program = looping(noisy, 9, is_within)
    with pytest.raises(NondeterministicModelError, match="step 'noisy' of a loop is not det"):
        dg.grad(lambda u: program(u, checkpoints=2))(U)


# -------------------------------------------------------------------------------------- errors


def raises_in_step(u, x):
    return u if x < 7 else 1 / 0


def failing(u):
    return dg.delayed(square)(dg.scan(raises_in_step, u, 9, xs=numpy.arange(9.0)))


@pytest.mark.parametrize(
    "evaluate", [lambda u: failing(dg.variable(u)).compute(), dg.grad(failing)]
)
def test_errors_name_the_model_and_the_step(evaluate):
    with pytest.raises(ZeroDivisionError) as caught:
        evaluate(U)
    note = "pass of model 'raises_in_step', step 7, called with"
    assert any(note in line for line in caught.value.__notes__)


def test_an_end_by_a_mask_has_exact_zeros_behind_it():
    def until(state, c):
        u, done = state
        after = np.where(done, u, u * c)
        return after, done | (np.abs(after) < 0.2)

    def end(c):
        return dg.scan(until, (1.0, numpy.False_), 100, c)[0]

    value, slope = dg.value_and_grad(end)(0.5)
    assert value == 0.125
    assert slope == 3 * 0.5**2
