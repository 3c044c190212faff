"""What a tape promises of outputs, memory, aliasing, depth and errors."""

import functools
import pickle
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as anp
import cloudpickle
import numpy as np
import pytest
from autograd.core import make_vjp
from autograd.extend import defvjp, primitive
from numpy.testing import assert_allclose, assert_array_equal
from waiting import SLOW

from daskgrad.autodiff.models.captured import Pullback, held_nbytes
from daskgrad.autodiff.tape import trace


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def frozen(value):
    """A value that cannot be written to, so that whoever writes into it is found out."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


# --------------------------------------------------------------------------------- outputs


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
    assert_array_equal(a, g[0] + g[5] + y * (g[1] + g[3]))
    assert_array_equal(b, x * (g[1] + g[3]))


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


def test_constants_and_outputs_without_derivative_pass_nothing_on():
    _, tape = trace(lambda a: [1.0, np.ones(2)], [np.ones(3)])
    assert tape.steps == 0
    assert tape.pull([1.0, np.ones(2)]) == [None]
    _, tape = trace(lambda a: [anp.floor(a), (a * 2.0).astype(int)], [np.ones(3)])
    assert tape.pull([np.ones(3), np.ones(3)]) == [None]


# ---------------------------------------------------------------------------------- leaves


def with_peak(call):
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def test_an_untouched_leaf_costs_nothing():
    """autograd makes zeros for every entry of a dict at every use of one of them."""
    large, small = np.zeros(2_000_000), np.ones(5)

    def pulled():
        return trace(lambda a, b: [anp.sum(anp.sin(b) * b)], [large, small])[1].pull([1.0])

    (of_large, of_small), peak = with_peak(pulled)
    assert of_large is None
    assert of_small.shape == (5,)
    assert peak < large.nbytes / 50


def test_a_cotangent_is_freed_before_those_that_it_became_are_added_up():
    array = np.ones(100_000)
    _, tape = trace(lambda a: [anp.sum(a - 4.0 * a)], [array])
    tape.pull([1.0])
    _, peak = with_peak(lambda: tape.pull([1.0]))
    assert peak < 3.5 * array.nbytes, "two that are added, and their sum"


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
    before = [random.standard_normal(np.shape(output)) for output in outputs]
    first = tape.pull([frozen(cotangent.copy()) for cotangent in before])[0]
    kept, g = first.copy(), [cotangent.copy() for cotangent in before]
    second = tape.pull(g)[0]
    assert_array_equal(first, kept)
    assert_array_equal(second, kept)
    for cotangent, copy in zip(g, before, strict=True):
        assert_array_equal(cotangent, copy)


def test_two_arrays_may_receive_one_object_and_neither_is_added_into():
    """The pullback of a + b returns its cotangent twice; then a receives more than b."""
    _, tape = trace(lambda a, b: [a + b, a + 1.0, a[1:], a * 2.0], [np.zeros(3), np.zeros(3)])
    a, b = tape.pull([np.ones(3), np.ones(3), np.ones(2), np.ones(3)])
    assert_array_equal(a, [4.0, 5.0, 5.0])
    assert_array_equal(b, np.ones(3))


def test_arrays_of_two_dtypes_get_cotangents_of_their_own(random):
    a, b = random.standard_normal(4).astype(np.float32), random.standard_normal(4)
    _, tape = trace(lambda x, y: [anp.sum(x * y + x[::-1] / 2.0)], [a, b])
    pulled = Pullback(tape, (a, b), (0, 1))((np.float64(1.0),))
    assert [cotangent.dtype for cotangent in pulled] == [np.float32, np.float64]
    assert_allclose(pulled[0], b + 0.5, rtol=1e-6)


def test_one_tape_may_be_pulled_from_two_threads_at_once(random):
    x = random.standard_normal((40, 40))

    def fun(a):
        for _ in range(20):
            a = anp.tanh(a @ a / 40.0) + 0.4 * a[::-1] + 0.4 * a[:, np.arange(40)]
        return [a]

    _, tape = trace(fun, [x])
    gs = random.standard_normal((2, 40, 40))
    expected = [bits(tape.pull([g])[0]) for g in gs]
    start = threading.Barrier(2)

    def pull(g):
        start.wait(60 * SLOW)
        return [bits(tape.pull([g])[0]) for _ in range(10)]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(pull, gs)) == [[expected[0]] * 10, [expected[1]] * 10]


# ---------------------------------------------------------------------------------- errors


def test_a_key_error_inside_a_rule_is_not_taken_for_a_missing_rule():
    @primitive
    def broken(x):
        return x

    def broken_vjp(ans, x):
        raise KeyError("weights")

    defvjp(broken, broken_vjp)
    with pytest.raises(KeyError, match="weights"):
        trace(lambda a: [broken(a)], [np.ones(2)])


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
