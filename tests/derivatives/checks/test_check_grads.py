"""The checker is right about right and about wrong derivatives, and names the wrong rule."""

import autograd.numpy as np
import pytest
from autograd.extend import defvjp, primitive
from lengths import in_short

import daskgrad as dg

X = np.array([0.3, -0.5, 0.9])


pytestmark = pytest.mark.usefixtures("synchronous")


def model_of(fun):
    return dg.delayed(fun, name="model")


def off(factor, argument=0):
    """x ↦ sin(x) y with a rule that is off by a factor, for one of its arguments."""
    factors = [factor if number == argument else 1.0 for number in range(2)]

    @primitive
    def slightly_wrong(x, y):
        return np.sin(x) * y

    defvjp(
        slightly_wrong,
        lambda ans, x, y: lambda g: factors[0] * g * np.cos(x) * y,
        lambda ans, x, y: lambda g: factors[1] * g * np.sin(x),
    )
    return slightly_wrong


RIGHT = {
    "a scalar": (lambda x: np.sum(np.exp(x)), (X,)),
    "a linear model": (lambda x: 3.0 * x, (X,)),
    "an array": (lambda x: np.sin(x) * np.outer(x, x), (X,)),
    "a matrix": (lambda a, b: np.linalg.solve(a, b), (np.eye(3) * 3 + 0.1, X)),
    "a number": (lambda x: np.tanh(x) ** 3, (0.7,)),
    "a pytree": (
        lambda p: {"a": p["w"] @ p["b"], "s": [np.sum(p["b"]), 3]},
        ({"w": np.eye(3) + 0.2, "b": X},),
    ),
    "integers among them": (lambda x, n: x**n, (X, 3)),
    "mixed leaves": (lambda p: p["x"] * p["n"], ({"x": X, "n": 2, "s": "text"},)),
    "large values": (lambda x: 1e8 * np.sin(x), (X,)),
    "small values": (lambda x: 1e-3 * np.sin(x), (1e-3 * X,)),
    "a value that is zero": (lambda x: 0.0 * np.sum(x), (X,)),
    "complex to complex": (lambda z: z * z + np.exp(1j * z), (X + 1j,)),
    "complex to real": (lambda z: np.sum(np.abs(z) ** 2), (X + 0.5j,)),
    "real to complex": (lambda x: np.exp(1j * x), (X,)),
    "an empty array": (lambda x: np.sum(x**2), (np.zeros(0),)),
}


@in_short("name", RIGHT, *list(RIGHT)[::2])
def test_a_right_pullback_passes(name):
    fun, args = RIGHT[name]
    for seed in range(3):
        dg.check_grads(model_of(fun), seed=seed)(*args)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_right_pullback_passes_in_every_precision(dtype, size, random):
    x = random.standard_normal(size).astype(dtype)
    if np.dtype(dtype).kind == "c":
        x = x + (1j * random.standard_normal(size)).astype(dtype)
    for fun in (lambda x: np.sin(x) * x, lambda x: np.sum(np.cos(x) ** 2), lambda x: 2.0 * x):
        dg.check_grads(model_of(fun))(x)


@in_short("factor", [1.001, 0.999, -1.0, 0.0, 2.0, 1.0 + 1e-5], 1.001, 0.0, 1.0 + 1e-5)
@pytest.mark.parametrize("number", [0, 1])
def test_a_rule_that_is_off_is_found_and_its_argument_named(factor, number):
    wrong = off(factor, number)
    for fun in (wrong, lambda x, y: np.sum(wrong(x, y))):
        with pytest.raises(
            AssertionError,
            match=rf"pullback of 'model' is wrong for argument {number} \(float64\[3\]\)",
        ):
            dg.check_grads(model_of(fun))(X, X + 2.0)


def with_rule(fun, slope):
    wrong = primitive(fun)
    defvjp(wrong, lambda ans, x: lambda g: g * slope(x))
    return wrong


MASK = np.where(np.arange(100) == 17, 1.01, 1.0)
WRONG = {
    "one entry of many": (
        with_rule(lambda x: x**2, lambda x: 2.0 * x * MASK),
        (np.linspace(1.0, 2.0, 100),),
    ),
    "single precision": (off(1.01), (np.float32(X), np.float32(X + 2.0))),
    "complex": (off(1.001), (X + 0j, X + 2.0 + 0j)),
    "complex, single precision": (off(1.05), (np.complex64(X), np.complex64(X + 2.0))),
    # autograd's convention for complex numbers, and no other
    "a conjugate too many": (with_rule(lambda z: z * z, lambda z: 2.0 * np.conj(z)), (X + 1j,)),
    "a missing dependence": (lambda x: np.sum(x * dg.value(x)), (X,)),
    "NaN": (lambda x: np.sum(x) * np.nan, (X,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    """Whatever is compared with NaN is not close to it."""
    fun, args = WRONG[name]
    with pytest.raises(AssertionError, match="gives nan" if name == "NaN" else "argument 0"):
        dg.check_grads(model_of(fun))(*args)


def test_tolerances_are_the_callers():
    wrong = model_of(off(1.001))
    dg.check_grads(wrong, rtol=0.1)(X, X + 2.0)
    dg.check_grads(wrong, atol=1.0)(X, X + 2.0)
    with pytest.raises(AssertionError, match="argument 0"):
        dg.check_grads(wrong, rtol=1e-5)(X, X + 2.0)


def test_an_argument_that_is_not_used_is_told_and_passes():
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        dg.check_grads(lambda x, y: model_of(np.sin)(x))(X, X)


@pytest.mark.parametrize("name", ["a scalar", "an array", "a matrix", "a pytree", "mixed leaves"])
def test_right_second_derivatives_pass(name):
    fun, args = RIGHT[name]
    dg.check_grads(model_of(fun), order=2)(*args)


def test_a_rule_that_is_wrong_to_second_order_alone_is_found():
    """The rule of sine is right, and that of the cosine in it is not."""
    cosine = with_rule(np.cos, lambda x: -1.001 * np.sin(x))
    wave = dg.delayed(lambda x: np.sum(with_rule(np.sin, cosine)(x)), name="wave")

    def fun(x):
        return wave(model_of(lambda x: x**2)(x)) ** 2

    dg.check_grads(fun)(X)
    with pytest.raises(AssertionError, match="Hessian-vector product of 'fun' is wrong") as caught:
        dg.check_grads(fun, order=2)(X)
    assert "that of model 'wave', argument 0" in str(caught.value)
    assert "Taylor's remainders fall at the rates 1.0" in str(caught.value)


def test_graphs_with_cuts_are_right_in_all_modes():
    """What is stopped is a constant of the derivative, and not of the differences."""
    first, second = model_of(np.sin), model_of(lambda x, y: np.sum(x * y))
    fixed = np.cos(X)

    def fun(x):
        return second(first(x), dg.stop_gradient(first(fixed))) ** 2

    dg.check_grads(fun, order=2)(X)
    with pytest.raises(AssertionError, match="nodes that matter is right by itself"):
        dg.check_grads(lambda x: second(first(x), dg.stop_gradient(first(x))), modes="reverse")(X)


def test_reverse_mode_alone_calls_neither_forward_mode_nor_second_derivatives(monkeypatch):
    monkeypatch.setattr("daskgrad.derivatives.checks.directional.jvp", None)
    monkeypatch.setattr("daskgrad.derivatives.checks.directional.hvp", None)
    dg.check_grads(model_of(lambda x: np.sum(x**3)), modes=("reverse",))(X)


BOTH = ("forward", "reverse")


@pytest.mark.parametrize(
    ("modes", "order", "runs"),
    [("reverse", 1, 14), ("forward", 1, 16), (BOTH, 1, 17), (BOTH, 2, 17 + 3 + 12)],
)
def test_its_cost_is_what_is_promised(modes, order, runs):
    """The value, a gradient, 12 values for differences, 3 tangents, and the second order's."""
    seen = []

    def term(item, x):
        seen.append(item)
        return item * np.sum(np.sin(x))

    traced = dg.delayed(term, compile=False)
    dg.check_grads(lambda x: dg.map_sum(traced, [1.0, 2.0], x), order, modes)(X)
    assert len(seen) == 2 * runs


def test_the_report_says_what_agreed_and_shows_as_it_prints():
    report = dg.check_grads(dg.delayed(lambda x: np.sum(np.sin(x)), name="waves"), modes="reverse")(
        X
    )
    assert repr(report) == str(report)
    assert report.startswith("the derivatives of 'waves' agree with differences: order 1, reverse")


def test_an_explanation_shows_as_it_prints():
    text = dg.explain(lambda x: np.sum(x < 1.0), np.ones(3))
    assert repr(text) == str(text)
    assert text._repr_html_().startswith("<pre>")
    assert "<b" not in text._repr_html_()


def objective(x):
    return dg.delayed(np.sum)(x)
