"""Traces in threads: daskgrad's numbers are safe, autograd's own counter is seen to be wrong."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import tracer
from waiting import SLOW

from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.tape import trace
from daskgrad.autodiff.tape.boxes import trace_numbers
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.trees import flatten

WAIT = 60 * SLOW  # seconds; nothing waits unless something is broken


@pytest.fixture
def autograds_counter(monkeypatch):
    """autograd as it is without daskgrad."""
    counter = tracer.TraceStack()
    monkeypatch.setattr(tracer, "trace_stack", counter)
    return counter


def by_tape(fun):
    return lambda x: trace(lambda box: [fun(box)], [x])[1].pull([1.0])[0]


def bad_interleaving(grad):
    """The derivative of x · d(x y)/dy = x² at 3, in a thread that is disturbed by another one.

    ::

        thread A:  opens a trace ........................ leaves it
        thread B:  ................. opens an outer trace ........... opens an inner one

    The inner trace closes over the outer variable. A counter that A raised and lowered hands its
    number to both of B's traces, which then take each other's boxes for their own.
    """
    a_inside, b_inside, a_left = threading.Event(), threading.Event(), threading.Event()

    def a():
        def fun(x):
            a_inside.set()
            assert b_inside.wait(WAIT)
            return x * x

        grad(fun)(1.0)
        a_left.set()

    def b():
        def fun(x):
            b_inside.set()
            assert a_left.wait(WAIT)
            return x * grad(lambda y: x * y)(1.0)

        assert a_inside.wait(WAIT)
        return grad(fun)(3.0)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(a), pool.submit(b)
        first.result(WAIT)
        return second.result(WAIT)


@pytest.mark.parametrize("grad", [autograd.grad, by_tape])
def test_a_nested_derivative_is_right_while_another_thread_leaves_its_trace(grad):
    assert bad_interleaving(grad) == 6.0


@pytest.mark.usefixtures("autograds_counter")
def test_autograds_own_counter_gets_it_wrong():
    """The day this fails, autograd is safe in threads, and ``trace_numbers`` can go."""
    assert bad_interleaving(autograd.grad) != 6.0


def test_numbers_from_many_threads_are_distinct():
    start = threading.Barrier(8)

    def take(_):
        start.wait(WAIT)
        return [trace_numbers.next_number() for _ in range(5_000)]

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, range(8), timeout=WAIT))
    assert len(set().union(*taken)) == 8 * 5_000
    assert all(numbers == sorted(numbers) for numbers in taken)


def fail(x):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "run", [lambda: autograd.grad(fail)(1.0), lambda: trace(fail, [1.0])], ids=["autograd", "ours"]
)
def test_an_exception_inside_a_trace_does_no_harm(run):
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            run()
    outer = autograd.grad(lambda x: x * autograd.grad(lambda y: x * y * y)(2.0))
    assert outer(3.0) == 24.0


def test_importing_the_tape_makes_threads_safe_and_numbers_begin_above_open_traces():
    """Also within a model that is being traced, where autograd was used before."""
    code = (
        "import autograd, autograd.tracer as t\n"
        "with t.trace_stack.new_trace() as outer, t.trace_stack.new_trace() as inner:\n"
        "    import daskgrad.autodiff.tape\n"
        "    assert t.trace_stack.next_number() > inner > outer\n"
        "assert type(t.trace_stack).__name__ == 'TraceNumbers'\n"
        "assert autograd.grad(lambda x: x * autograd.grad(lambda y: x * y)(1.0))(3.0) == 6.0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60 * SLOW)


# ---------------------------------------------------------------------- models that nest


def nested(x):
    """A model whose value is made of derivatives, one of which closes over the traced array."""
    slopes = autograd.elementwise_grad(anp.tanh)(x)
    inner = autograd.grad(lambda y: anp.sum(anp.sin(x * y) * y))(x * 0.5)
    return anp.sum(slopes * x**2) + anp.sum(inner * x)


def captured(fun, x):
    leaves, structure = flatten(((None,), {}))
    call = Call(tuple(leaves), Structure(structure), ((0, 0),))
    made = capture(Model(fun, "nested"), call, [Active(0, watched=False)], [x])
    return made.value, made.pullback.leaves[0]


def test_nested_derivatives_inside_our_tape_are_right_from_eight_threads():
    x = np.linspace(0.1, 1.0, 3)
    value, gradient = captured(nested, x)
    expected = autograd.value_and_grad(nested)(x)
    np.testing.assert_allclose(value, expected[0], rtol=1e-14)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-13)
    h = 1e-6 * np.cos(x)
    assert gradient @ h == pytest.approx((nested(x + h) - nested(x - h)) / 2.0, rel=1e-6)
    start = threading.Barrier(8)

    def many(_):
        start.wait(WAIT)
        return [captured(nested, x)[1] for _ in range(40)]

    with ThreadPoolExecutor(8) as pool:
        for gradients in pool.map(many, range(8)):
            assert all(np.array_equal(other, gradient) for other in gradients)
