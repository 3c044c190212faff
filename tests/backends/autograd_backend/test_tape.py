"""The tape against autograd, bit by bit, and its promises on memory, aliasing and depth."""

import functools
import pickle
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as anp
import cloudpickle
import numpy as np
import pytest
from autograd.core import make_vjp
from autograd.extend import defvjp, primitive
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from daskgrad.backends.autograd import trace
from daskgrad.backends.autograd.pickling import TapePickler
from daskgrad.models.captured import Pullback, held_nbytes
from daskgrad.models.travel.packing import seal

N = 4


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def frozen(value):
    """A value that cannot be written to, so that whoever writes into it is found out."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def cotangent_of(value, random):
    g = random.standard_normal(np.shape(value))
    if np.iscomplexobj(value):
        g = g + 1j * random.standard_normal(np.shape(value))
    return frozen(g.astype(np.asarray(value).dtype)[()])


def assert_same_bits(fun, x, random):
    """Value and cotangent of one argument are autograd's."""
    outputs, tape = trace(lambda a: [fun(a)], [x])
    pullback, value = make_vjp(fun, x)
    g = cotangent_of(value, random)
    assert bits(outputs[0]) == bits(value)
    assert bits(tape.pull([g])[0]) == bits(pullback(g))


# --------------------------------------------------------------------------- the same bits


STEPS = (  # each makes of two vectors of length N one more
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (1.5 + b * b),
    lambda a, b: 2.0 - a,
    lambda a, b: 3 * a,
    lambda a, b: -a,
    lambda a, b: a**2,
    lambda a, b: (1.0 + a * a) ** -0.5,
    lambda a, b: (1.1 + anp.tanh(a)) ** b,
    lambda a, b: anp.tanh(a),
    lambda a, b: anp.exp(anp.sin(a)),
    lambda a, b: anp.log1p(anp.abs(a)),
    lambda a, b: anp.where(a > b, a, 0.1 * b),
    lambda a, b: anp.maximum(a, 0.2),
    lambda a, b: anp.concatenate([a[1:], b[:1]]),
    lambda a, b: a[::-1],
    lambda a, b: a[np.array([0, 2, 2, 1])],
    lambda a, b: a[1] + b,
    lambda a, b: a * anp.sum(b),
    lambda a, b: anp.mean(a) - b,
    lambda a, b: anp.dot(a, b) * a,
    lambda a, b: anp.dot(anp.outer(a, b), anp.cos(a)),
    lambda a, b: anp.outer(a, b) @ b,
    lambda a, b: anp.reshape(a, (2, 2)).T.ravel() + b,
    lambda a, b: anp.sum(a[:, None] * b, axis=0),
    lambda a, b: anp.mean(a[:, None] - b[None, :], axis=1),
    lambda a, b: anp.sum(a[:, None] + b, axis=1, keepdims=True)[:, 0],
    lambda a, b: anp.cumsum(a),
    lambda a, b: anp.stack([a, b])[1],
    lambda a, b: anp.real(anp.exp(1j * a) * b),
    lambda a, b: anp.einsum("i,j->i", a, b),
    lambda a, b: anp.floor(a) + b,
    lambda a, b: a,
)

ROUNDED = {3, 12}  # whose adjoints are computed in another way: a quotient, abs

programs = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 100), st.integers(0, 100)),
    min_size=1,
    max_size=12,
)


def interpreted(program):
    def fun(x):
        values = [x]
        for step, first, second in program:
            # the latest values come first, so that the output depends on most of them
            a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
            values.append(STEPS[step](a, b))
        return values[-1] + 0.5 * values[len(values) // 2]

    return fun


@settings(max_examples=200)
@given(programs, st.integers(0, 1000))
def test_random_programs_have_autograds_bits(program, seed):
    random = np.random.default_rng(seed)
    exact = [call for call in program if call[0] not in ROUNDED] or [(0, 0, 0)]
    assert_same_bits(interpreted(exact), random.uniform(-1.0, 1.0, N), random)


@settings(max_examples=200)
@given(programs, st.integers(0, 1000))
def test_random_programs_have_autograds_gradients(program, seed):
    random = np.random.default_rng(seed)
    fun, x = interpreted(program), random.uniform(-1.0, 1.0, N)
    outputs, tape = trace(lambda a: [fun(a)], [x])
    pullback, value = make_vjp(fun, x)
    g = cotangent_of(value, random)
    expected = pullback(g)
    assert bits(outputs[0]) == bits(value)
    assert_allclose(tape.pull([g])[0], expected, 0.0, 1e-10 * (1.0 + np.max(np.abs(expected))))


EXACT = [step for step in range(len(STEPS)) if step not in ROUNDED]


@pytest.mark.parametrize("step", EXACT)
def test_every_step_has_autograds_bits(step, random):
    def fun(x):
        return STEPS[step](anp.sin(x), anp.cos(x))

    assert_same_bits(fun, random.uniform(-1.0, 1.0, N), random)


@given(programs, st.integers(0, 1000))
def test_pulling_twice_gives_the_same_bits_and_leaves_the_first_result_alone(program, seed):
    random = np.random.default_rng(seed)
    outputs, tape = trace(lambda x: [interpreted(program)(x)], [random.uniform(-1.0, 1.0, N)])
    g = cotangent_of(outputs[0], random)
    first = tape.pull([g])[0]
    before = bits(first)
    second = tape.pull([g])[0]
    assert bits(first) == before == bits(second)


@pytest.mark.parametrize(
    "value", [0.7, np.float32(0.7), np.array(0.7), np.float64(0.7), 0.7 + 0.2j]
)
def test_scalars_of_every_kind_have_autograds_bits(value, random):
    assert_same_bits(lambda x: anp.sin(x) * x + x / 3.0 - 2 * x**3, value, random)


# --------------------------------------------------------------------------------- outputs


def test_every_output_has_a_cotangent():
    outputs, tape = trace(lambda a, b: [a * b, anp.sum(a), 2.0 * b], [np.ones(3), np.full(3, 2.0)])
    g = [np.array([1.0, 2.0, 3.0]), np.float64(10.0), np.array([100.0, 200.0, 300.0])]
    a, b = tape.pull(g)
    assert [np.shape(output) for output in outputs] == [(3,), (), (3,)]
    np.testing.assert_array_equal(a, 2.0 * g[0] + 10.0)
    np.testing.assert_array_equal(b, g[0] + 2.0 * g[2])


def test_an_output_may_be_an_input_come_twice_and_be_constant():
    constant = np.arange(2.0)
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])

    def fun(a, b):
        product = a * b
        return [a, product, 7.0, product, constant, a]

    outputs, tape = trace(fun, [x, y])
    assert outputs[0] is x
    assert outputs[4] is constant
    g = [frozen(np.full(2, 10.0**k)) for k in range(6)]
    a, b = tape.pull(g)
    np.testing.assert_array_equal(a, g[0] + g[5] + y * (g[1] + g[3]))
    np.testing.assert_array_equal(b, x * (g[1] + g[3]))


def test_a_tape_that_was_pickled_gives_the_same_bits(random):
    """Of several outputs, some of which others use, which come twice or are constant."""
    x, y = random.standard_normal((2, 50))

    def fun(a, b):
        product = anp.sin(a) * b / 3.0
        total = anp.exp(product) + product[::-1] + a * 0.1
        return [total, a, product, 7.0, total * product, product]

    outputs, tape = trace(fun, [x, y])
    g = [random.standard_normal(np.shape(output)) for output in outputs]
    again = seal(tape, TapePickler).load()
    assert again.steps == tape.steps
    assert list(map(bits, again.pull(g))) == list(map(bits, tape.pull(g)))


def test_an_output_that_is_used_by_another_one_is_pulled_back_once():
    pulled = []

    @primitive
    def watched(x):
        return x

    defvjp(watched, lambda ans, x: lambda g: pulled.append(g) or g)

    def fun(a):
        middle = watched(a)
        return [middle, anp.sin(middle), middle]

    _, tape = trace(fun, [np.float64(0.3)])
    (cotangent,) = tape.pull([1.0, 10.0, 100.0])
    assert len(pulled) == 1
    assert cotangent == pytest.approx(101.0 + 10.0 * np.cos(0.3))


def test_nothing_arrives_where_no_cotangent_was_given():
    _, tape = trace(lambda a, b: [a * 2.0, b * 2.0], [np.ones(2), np.ones(2)])
    a, b = tape.pull([None, np.ones(2)])
    assert a is None
    np.testing.assert_array_equal(b, [2.0, 2.0])


def test_constants_alone_make_an_empty_tape():
    outputs, tape = trace(lambda a: [1.0, np.ones(2)], [np.ones(3)])
    assert outputs[0] == 1.0
    assert tape.steps == 0
    assert tape.pull([1.0, np.ones(2)]) == [None]


def test_an_output_without_derivative_passes_nothing_on():
    _, tape = trace(lambda a: [anp.floor(a), (a * 2.0).astype(int)], [np.ones(3)])
    assert tape.pull([np.ones(3), np.ones(3)]) == [None]


# ---------------------------------------------------------------------------------- leaves


def test_an_untouched_leaf_costs_nothing():
    """autograd makes zeros for every entry of a dict at every use of one of them."""
    large, small = np.zeros(2_000_000), np.ones(5)
    tracemalloc.start()
    _, tape = trace(lambda a, b: [anp.sum(anp.sin(b) * b)], [large, small])
    cotangents = tape.pull([1.0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cotangents[0] is None
    assert cotangents[1].shape == (5,)
    assert peak < large.nbytes / 50


def test_a_cotangent_is_freed_before_those_that_it_became_are_added_up():
    array = np.ones(100_000)
    _, tape = trace(lambda a: [anp.sum(a - 4.0 * a)], [array])
    tape.pull([1.0])
    tracemalloc.start()
    tape.pull([1.0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.5 * array.nbytes, "two that are added, and their sum"


def test_using_one_leaf_many_times_does_not_touch_the_others():
    leaves = [np.ones(100_000) for _ in range(10)]

    def fun(*boxes):
        total = 0.0
        for _ in range(20):
            for box in boxes:
                total = total + box[0] * 1.5
        return [total]

    _, tape = trace(fun, leaves)
    tracemalloc.start()
    cotangents = tape.pull([1.0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [cotangent[0] for cotangent in cotangents] == [30.0] * 10
    assert peak < 1.2 * sum(leaf.nbytes for leaf in leaves)


# ----------------------------------------------------------------------------------- depth


def chain(x):
    for _ in range(5_000):
        x = anp.sin(x) * 1.0001
    return x


@pytest.fixture
def usual_recursion():
    """Python's own limit; PyTensor raises it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


def test_a_chain_of_10000_primitives_needs_no_recursion(usual_recursion):
    x = np.linspace(0.1, 1.0, 3)
    _, tape = trace(lambda a: [chain(a)], [x])
    assert tape.steps == 10_001
    g = np.ones(3)
    assert bits(tape.pull([g])[0]) == bits(make_vjp(chain, x)[0](g))
    assert held_nbytes(tape, [x]) == 4_999 * 3 * 8  # what sin was called with, but x itself
    pullback = Pullback(tape, (x,), (0,))
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert len(dumps(pullback)) < 200
        assert pickle.loads(dumps(pullback)).is_empty


# -------------------------------------------------------------------------------- aliasing


def test_the_pullback_of_adding_a_constant_returns_the_object_it_was_given():
    """If this changes, nothing breaks; but it is why nobody may add into a cotangent received."""
    _, tape = trace(lambda a: [a + 1.0], [np.zeros(3)])
    g = np.ones(3)
    assert tape.pull([g])[0] is g


@pytest.mark.parametrize(
    "fun",
    [
        lambda a: [a + 1.0, a + 2.0, a + 3.0],
        lambda a: [a + 1.0, a[1:], a[:-1]],
        lambda a: [a[1:], a + 1.0, a + 2.0, a[[0, 0]]],
        lambda a: [a[1:], a + 1.0],
        lambda a: [a[[0, 0]], a + 1.0],
        lambda a: [a, a, a],
        lambda a: [(a + 1.0) + (a + 2.0) + (a + 3.0), a - 1.0],
        lambda a: [a + (a + (a + a[::-1]))],
    ],
)
def test_adding_up_changes_no_cotangent_that_was_handed_in(fun, random):
    """The cotangents are read-only, and are compared to what they were."""
    outputs, tape = trace(fun, [random.standard_normal(3)])
    g = [random.standard_normal(np.shape(output)) for output in outputs]
    before = [cotangent.copy() for cotangent in g]
    first = tape.pull([frozen(cotangent) for cotangent in g])[0]
    kept = first.copy()
    for cotangent in g:
        cotangent.flags.writeable = True
    second = tape.pull(g)[0]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, kept)
    for cotangent, copy in zip(g, before, strict=True):
        np.testing.assert_array_equal(cotangent, copy)


def test_two_arrays_may_receive_one_object_and_neither_is_added_into():
    """The pullback of a + b returns its cotangent twice; then a receives more than b."""
    _, tape = trace(lambda a, b: [a + b, a + 1.0, a[1:], a * 2.0], [np.zeros(3), np.zeros(3)])
    a, b = tape.pull([np.ones(3), np.ones(3), np.ones(2), np.ones(3)])
    np.testing.assert_array_equal(a, [4.0, 5.0, 5.0])
    np.testing.assert_array_equal(b, np.ones(3))


# -------------------------------------------------------------------------- dtypes, complex


@pytest.mark.parametrize(
    "fun",
    [
        lambda z: anp.sum(anp.abs(z) ** 2),
        lambda z: anp.sum(anp.real(z * z) + anp.imag(z)),
        lambda z: z * anp.exp(1j * z),
        lambda z: z / (2.0 + z) - z**2,
        lambda z: anp.dot(z, anp.conj(z)),
        lambda z: anp.outer(z, z) @ z,
        lambda z: anp.fft.fft(z) * z,
        lambda z: z[1:] + anp.real(z[:-1]),
        lambda z: anp.mean(z * 2.0),
    ],
)
def test_complex_models_follow_autograds_convention(fun, random):
    z = random.standard_normal(N) + 1j * random.standard_normal(N)
    assert_same_bits(fun, z, random)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: anp.real(anp.exp(1j * x)),
        lambda x: anp.abs(x + 2j * x) ** 2,
        lambda x: x * (1.0 + 2j),
        lambda x: anp.sum((x + 1j) * anp.conj(x + 1j)),
        lambda x: (x * 1j)[1:] * x[1:] + x[:-1],
    ],
)
def test_real_arrays_in_complex_models_have_autograds_bits(fun, random):
    assert_same_bits(fun, random.standard_normal(N), random)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: x * x + 2.0 * x,
        lambda x: x / np.arange(1.0, N + 1),
        lambda x: anp.sum(x, axis=0) * np.float64(3.0),
        lambda x: anp.dot(np.ones((3, N)), x),
        lambda x: anp.dot(np.ones((3, N), np.float32), x),
        lambda x: x**2 + x**0.5,
        lambda x: x[1:] * np.arange(1.0, N),
        lambda x: anp.mean(x) + x[np.array([0, 0])],
    ],
)
def test_float32_has_autograds_bits_and_dtype(fun, random):
    assert_same_bits(fun, random.uniform(0.5, 1.0, N).astype(np.float32), random)


def test_arrays_of_two_dtypes_get_cotangents_of_their_own(random):
    a, b = random.standard_normal(N).astype(np.float32), random.standard_normal(N)
    _, tape = trace(lambda x, y: [anp.sum(x * y + x[::-1] / 2.0)], [a, b])
    pulled = Pullback(tape, (a, b), (0, 1))((np.float64(1.0),))
    assert [cotangent.dtype for cotangent in pulled] == [np.float32, np.float64]
    np.testing.assert_allclose(pulled[0], b + 0.5, rtol=1e-6)


# --------------------------------------------------------------------------------- threads


def test_one_tape_may_be_pulled_from_two_threads_at_once(random):
    x = random.standard_normal((40, 40))

    def fun(a):
        for _ in range(20):
            a = anp.tanh(a @ a / 40.0) + 0.4 * a[::-1] + 0.4 * a[:, np.arange(40)]
        return [a]

    outputs, tape = trace(fun, [x])
    gs = [cotangent_of(outputs[0], random) for _ in range(2)]
    expected = [bits(tape.pull([g])[0]) for g in gs]
    start = threading.Barrier(2)

    def pull(g):
        start.wait(10)
        return [bits(tape.pull([g])[0]) for _ in range(10)]

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(pull, gs, timeout=60))
    assert results == [[expected[0]] * 10, [expected[1]] * 10]


# ---------------------------------------------------------------------------------- errors


def test_a_primitive_without_rule_is_named():
    @primitive
    def odd(x):
        return x

    with pytest.raises(NotImplementedError, match=r"primitive 'odd' has no derivative rule"):
        trace(lambda a: [odd(a)], [np.ones(2)])


def test_a_primitive_without_rule_for_one_argument_is_named_with_it():
    @primitive
    def half_known(x, y):
        return x * y

    defvjp(half_known, lambda ans, x, y: lambda g: g * y, argnums=(0,))
    trace(lambda a: [half_known(a, 2.0)], [np.ones(2)])
    for fun in (lambda a: [half_known(2.0, a)], lambda a: [half_known(a, a)]):
        with pytest.raises(NotImplementedError, match=r"'half_known' .* its argument .*1"):
            trace(fun, [np.ones(2)])


def test_a_key_error_inside_a_rule_is_not_taken_for_a_missing_rule():
    @primitive
    def broken(x):
        return x

    def broken_vjp(ans, x):
        raise KeyError("weights")

    defvjp(broken, broken_vjp)
    with pytest.raises(KeyError, match="weights"):
        trace(lambda a: [broken(a)], [np.ones(2)])


@pytest.mark.parametrize(
    "fun",
    [
        lambda a, i: [a[i.astype(int)]],
        lambda a, i: [anp.take(a, i.astype(int))],
        lambda a, i: [anp.take(np.ones(3), i.astype(int))],
    ],
)
def test_an_index_that_depends_on_a_variable_is_an_error_that_says_what_to_do(fun):
    with pytest.raises(TypeError, match=r"an index has no derivative; .*dg.value\(index\)"):
        trace(fun, [np.ones(3), np.array([1.0])])


# ---------------------------------------------------------------------------------- memory


def deep(x):
    for _ in range(6):
        x = anp.exp(anp.sin(x))
    return x


SIZED = {
    "the argument alone": lambda x: anp.sin(x),
    "the result": lambda x: anp.exp(x),
    "one array held twice": lambda x: anp.log(anp.exp(x)) + anp.sqrt(anp.exp(x)),
    "a view counts as its owner": lambda x: anp.sin(anp.exp(x)[::2]),
    "products": lambda x: (x * x) * anp.tanh(x),
    "a matrix product": lambda x: anp.dot(anp.reshape(anp.exp(x), (400, 500)), np.ones((500, 300))),
    "broadcasting": lambda x: anp.reshape(anp.sin(x), (400, 500)) / (2.0 + anp.cos(x[:500])),
    "integer indices": lambda x: anp.sin(x)[np.arange(100_000)],
    "a chain": deep,
    "a sum": lambda x: anp.sum(anp.cos(x)) * anp.mean(anp.sin(x)),
}


@pytest.mark.parametrize("name", SIZED)
def test_the_bytes_that_a_tape_reports_are_those_it_keeps_alive(name):
    """Measured by tracemalloc; the argument is not counted, in either."""
    x = np.linspace(0.1, 1.0, 200_000)
    fun = SIZED[name]
    trace(lambda a: [fun(a)], [x])
    measured = []
    for _ in range(3):  # other threads of this process may allocate meanwhile
        tracemalloc.start()
        outputs, tape = trace(lambda a: [fun(a)], [x])
        del outputs
        measured.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        reported = held_nbytes(tape, [x])
        del tape
    assert reported == pytest.approx(min(measured), rel=0.03, abs=30_000)


def test_arrays_that_are_held_twice_count_once_and_arguments_do_not():
    x = np.ones(1000)
    _, tape = trace(lambda a: [anp.log(anp.exp(a)) * anp.sqrt(anp.exp(a)) + anp.sin(a)], [x])
    assert held_nbytes(tape) == held_nbytes(tape, [x]) + x.nbytes
    assert held_nbytes(tape, [x[::2]]) == held_nbytes(tape, [x])


def test_what_a_rule_keeps_in_partials_and_containers_is_counted():
    residual = np.ones(1000)

    @primitive
    def watched(x, where):
        return x

    def kept_in(where, g, **kwargs):
        return g

    held = {
        "positional": lambda: functools.partial(kept_in, residual),
        "keyword": lambda: functools.partial(kept_in, None, residual=residual),
        "function": lambda: functools.partial(lambda g, x=None: g + 0.0 * residual[0]),
        "containers": lambda: functools.partial(kept_in, {"a": [(residual,)]}),
    }
    defvjp(watched, lambda ans, x, where: held[where](), None)
    for where in held:
        _, tape = trace(lambda a, w=where: [watched(a, w)], [np.ones(2)])
        assert held_nbytes(tape) == residual.nbytes


# ---------------------------------------------------------------------------- second order


MASK = np.array([[True, False, True], [False, True, True], [True, True, False]])
ROWS = np.array([0, 2, 2, 1])

TWICE = {
    "stencil": lambda u: anp.sum((u[:-2] - 2.0 * u[1:-1] + u[2:]) ** 3),
    "mask": lambda u: anp.sum(anp.sin(u)[MASK] ** 2),
    "integers with repeats": lambda u: anp.sum(anp.exp(u[ROWS]) * u[ROWS]),
    "entries": lambda u: u[0, 1] ** 2 * u[2, 2] * anp.sin(u[0, 1]),
    "the same slice twice": lambda u: anp.sum(u[1:] * u[1:] * u[:-1]) + anp.sum(u**3),
    "products": lambda u: anp.sum(anp.dot(u, u) @ u[0]) + anp.dot(u[0], u[1]) ** 2,
    "arithmetic": lambda u: anp.sum((u * u[0] - u / (2.0 + u**2)) ** 2),
    "slices whose cotangents are plain": lambda u: anp.sum(u[1:]) + anp.sum(u**3) + anp.sum(u[:1]),
    "and in another order": lambda u: anp.sum(u**3) + anp.sum(u[1:]) + anp.sum(u**2),
    "sums": lambda u: anp.sum(anp.sum(u**2, axis=0) ** 2) * anp.mean(u**2),
}


def by_tape(fun):
    """The gradient from our tape, as a function that others may differentiate."""

    def gradient(x):
        _, tape = trace(lambda a: [fun(a)], [x])
        return tape.pull([1.0])[0]

    return gradient


@pytest.mark.parametrize("name", TWICE)
def test_differentiating_through_pull_is_autograds_grad_of_grad(name, random):
    fun, u, v = TWICE[name], random.standard_normal((3, 3)), random.standard_normal((3, 3))
    expected = autograd.grad(lambda x: anp.sum(autograd.grad(fun)(x) * v))(u)
    found = autograd.grad(lambda x: anp.sum(by_tape(fun)(x) * v))(u)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TWICE)
def test_our_tape_of_our_tape_is_autograds_grad_of_grad(name, random):
    fun, u, v = TWICE[name], random.standard_normal((3, 3)), random.standard_normal((3, 3))
    expected = autograd.grad(lambda x: anp.sum(autograd.grad(fun)(x) * v))(u)
    found = by_tape(lambda x: anp.sum(by_tape(fun)(x) * v))(u)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_differentiating_a_pull_with_respect_to_its_cotangent(random):
    """<g, J v> is linear in g, and its derivative with respect to g is J v."""
    u, v = random.standard_normal((3, 3)), random.standard_normal((3, 3))

    def fun(a):
        return anp.sin(a)[1:] * a[:-1] + anp.dot(a, a)[ROWS[:2]] / (2.0 + a[0] ** 2)

    _, tape = trace(lambda a: [fun(a)], [u])
    found = autograd.grad(lambda g: anp.sum(tape.pull([g])[0] * v))(np.zeros((2, 3)))
    expected = autograd.grad(lambda g: anp.sum(make_vjp(fun, u)[0](g) * v))(np.zeros((2, 3)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_take_is_differentiated_twice_as_indexing_is(random):
    u, v = random.standard_normal((3, 3)), random.standard_normal((3, 3))

    def by_index(a):
        return anp.sum(anp.sin(a[ROWS]) ** 2)

    def by_take(a):
        return anp.sum(anp.sin(anp.take(a, ROWS, axis=0)) ** 2)

    expected = autograd.grad(lambda x: anp.sum(autograd.grad(by_index)(x) * v))(u)
    found = by_tape(lambda x: anp.sum(by_tape(by_take)(x) * v))(u)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "slope"),
    [
        (lambda a: anp.sum(a[None]) + a * 3.0, 4.0),
        (lambda a: a * 3.0 + anp.sum(a[anp.abs(a) > 1]), 4.0),
        (lambda a: anp.sum(anp.dot(np.zeros((0, 1)), anp.reshape(a, 1)) ** 2) + a, 1.0),
    ],
)
def test_a_number_may_be_indexed_and_a_product_may_be_empty(model, slope):
    for number in (np.float64(2.0), np.asarray(2.0)):
        _, tape = trace(lambda a: [model(a)], [number])
        assert tape.pull([1.0])[0] == slope
