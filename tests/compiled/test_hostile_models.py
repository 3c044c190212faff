"""Models that a list of calls cannot repeat, or not always: right, or a clear error."""

import contextlib
import functools
import gc
import itertools
import random as python_random
import types
import weakref

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.tracer import getval
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.values.trees import flatten, map_leaves

X = np.linspace(-1.0, 1.0, 5)
WIDE = np.linspace(0.1, 2.0, 40)
TABLE = np.cos(np.arange(12.0)).reshape(4, 3)
state = types.SimpleNamespace(scale=1.0, calls=0, array=np.ones(5), large=np.ones(1000))


def newton(x):
    y = 1.0 + 0.0 * x[0]
    while abs(y * y - 2.0 - x[0] ** 2) > 1e-12:
        y = y - (y * y - 2.0 - x[0] ** 2) / (2.0 * y)
    return y


def caught(x):
    try:
        return float(x[0]) * np.sum(x)
    except Exception:
        return np.sum(x) ** 2


def in_place(x):
    out = np.zeros(5)
    out[:] = 2.0
    return np.sum(out * x)


def refilled(x):
    buffer, total = np.ones(5), 0.0
    for factor in range(3):
        buffer[:] = factor
        total = total + np.sum(buffer * x**2)
    return total


def refilled_index(x):
    index, total = np.array([0, 1]), 0.0
    for shift in range(3):
        index[:] = [shift, shift + 1]
        total = total + np.sum(x[index] ** 2) * (1.0 + shift)
    return total


def rare(x):
    if any(getval(x) > 0.9):
        return np.sum(x) * 2.0
    return np.sum(x)


MODELS = {  # of one vector
    "if": lambda x: np.sum(x) if x[0] > 0.0 else np.sum(x**2),
    "if of two": lambda x: x[0] * x[1] if x[0] > 0 and x[1] > 0 else np.sum(np.sin(x)),
    "while": newton,
    "max of boxes": lambda x: max(x[0], x[1], 0.2) * np.sum(x),
    "sorted boxes": lambda x: sorted([x[0], x[1], x[2]])[1] ** 2,
    "np.any": lambda x: np.sum(x) if np.any(x > 0.8) else np.sum(x**3),
    "abs of a box": lambda x: abs(x[0]) * np.sum(abs(x)),
    "float": lambda x: float(getval(x)[0]) * np.sum(x),
    "float of a box": lambda x: np.sum(x) * (float(x[0]) if hasattr(x[0], "__float__") else 1.0),
    "float of data": lambda x: np.sum(x * float(TABLE[0, 0])),
    "item": lambda x: x[0].item() if hasattr(x[0], "item") else np.sum(x),
    "getval": lambda x: np.sum(x) * np.sum(getval(x) ** 2),
    "dg.value": lambda x: np.sum(x) * np.sum(dg.value(x) ** 2),
    "stop_gradient": lambda x: np.sum(x * dg.stop_gradient(x) ** 2),
    "_value": lambda x: np.sum(x) * (x._value[0] if hasattr(x, "_value") else 1.0),
    "a derivative": lambda x: np.sum(autograd.grad(lambda t: np.sum(t**3))(x) * x),
    "a jacobian": lambda x: np.sum(autograd.jacobian(lambda t: anp.sin(t) * t)(x)),
    "mask": lambda x: np.sum(x[x > 0.0] ** 2) + np.mean(x[x > -2.0]),
    "mean of a mask": lambda x: np.mean(x[x > 0.1]) * x[0],
    "nonzero": lambda x: np.sum(x[np.nonzero(TABLE[:, 0])[0]]),
    "unique": lambda x: np.sum(np.unique(np.round(getval(x), 1))) * np.sum(x),
    "argmax": lambda x: x[np.argmax(x)] * np.sum(x),
    "argsort": lambda x: np.sum(x[np.argsort(x)] * np.arange(5.0)),
    "median": lambda x: np.median(x) * np.sum(x**2),
    "searchsorted": lambda x: np.sum(x) * np.searchsorted(np.linspace(-1, 1, 9), getval(x)[0]),
    "isinstance": lambda x: np.sum(x) * (2.0 if isinstance(x, np.ndarray) else 3.0),
    "len": lambda x: np.sum(x) / len(x) * x.shape[0] * x.ndim,
    "in place": in_place,
    "a refilled buffer": refilled,
    "a refilled index": refilled_index,
    "an exception is caught": caught,
    "boxes in an array": lambda x: np.sum(np.array([x[0], x[1] * x[2], 1.0]) ** 2),
    "boxes in a list": lambda x: np.sum(np.stack([x, x**2]) * 0.5),
    "concatenate": lambda x: np.sum(np.concatenate([x[1:], x[:1], [1.0]]) ** 2),
    "power of itself": lambda x: np.sum((x**2 + 1.0) ** x),
    "zero in the denominator": lambda x: np.sum(x / (x[0] - x[0])),
    "overflow": lambda x: np.sum(np.exp(1e3 * x)),
    "log of negatives": lambda x: np.sum(np.log(x)),
    "NaN": lambda x: np.sum(np.where(x > 0, np.sqrt(x), np.nan * x)),
    "negative zeros": lambda x: np.sum(-0.0 * x) + np.sum(x * 0.0 - 0.0),
    "constant": lambda x: 3.0,
    "its argument": lambda x: x,
    "its argument twice": lambda x: (x, x[0], x * 1.0),
    "a view": lambda x: x[::-1],
    "a dict": lambda x: {"a": x * 2.0, "b": [np.sum(x), 1.0, "label"]},
    "complex": lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2) + np.real(np.exp(1j * x[0])),
    "single precision": lambda x: np.sum(x.astype(np.float32) ** 2),
    "integers": lambda x: np.sum(x) * np.sum(np.floor(x).astype(int)),
    "cholesky": lambda x: np.sum(np.linalg.cholesky(np.outer(x, x) + 9.0 * np.eye(5)) ** 2),
    "slogdet": lambda x: np.linalg.slogdet(np.outer(x, x) + 9.0 * np.eye(5))[1] * x[0],
    "eigh": lambda x: np.sum(np.linalg.eigh(np.outer(x, x) + np.diag(np.arange(5.0)))[0] ** 2),
    "einsum": lambda x: np.einsum("i,ij,j->", x[:4], TABLE, x[:3]),
    "custom": lambda x: np.sum(square(x) * x),
    "rows of a table": lambda x: np.sum(TABLE[[0, 2]] * x[:3]) + TABLE[1, 2] * x[0],
    "a deep loop": lambda x: deep(x),
    "an error sometimes": lambda x: error_if(x[0] > 0.4, np.sum(x)),
    "a rare path": rare,
    "printed": lambda x: np.sum(x) if str(x) else 0.0,
    "copied": lambda x: np.sum(np.copy(x) * np.array(x)),
    "iterated": lambda x: sum([each**2 for each in x]),
    "tiny steps": lambda x: np.sum(np.cumsum(np.diff(x)) * np.clip(x[1:], -0.5, 0.5)),
}


@dg.custom_vjp
def square(x):
    return x**2, lambda g: 2.0 * g * x


def deep(x):
    y = x
    for _ in range(60):
        y = np.sin(y) + 0.1 * x
    return np.sum(y)


def error_if(condition, value):
    if condition:
        raise ValueError("the model's own")
    return value


def points(count=9):
    random = np.random.default_rng(5)
    return [random.normal(size=5) for _ in range(count)]


def outcome(call):
    """What a call gives: numbers, or the type of its error."""
    with np.errstate(all="ignore"):
        try:
            return call()
        except dg.NondeterministicModelError:
            raise
        except Exception as error:
            return type(error)


def derivatives_of(model):
    def of(x):
        value, pullback = dg.vjp(model, x)
        ones = dg_map(np.ones_like, value)
        return value, pullback(ones)

    return of


def dg_map(fun, value):
    return map_leaves(
        lambda leaf: fun(leaf) if isinstance(leaf, np.ndarray | float) else leaf, value
    )


def assert_same(found, expected):
    if isinstance(expected, type):
        assert found is expected
        return
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        assert_array_equal(one, other)
        if isinstance(other, np.ndarray | float):
            assert_array_equal(np.signbit(np.real(one)), np.signbit(np.real(other)))


@pytest.mark.usefixtures("synchronous")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_is_right_or_an_error(name):
    model = MODELS[name]
    found, expected = (
        derivatives_of(dg.delayed(model, compile=is_compiled)) for is_compiled in (True, False)
    )
    for x in points():
        with contextlib.suppress(dg.NondeterministicModelError):
            assert_same(outcome(lambda x=x: found(x)), outcome(lambda x=x: expected(x)))


# ------------------------------------------------------------------ what is not an argument


def compiled_gradient(model):
    gradient = dg.value_and_grad(dg.delayed(model, compile=True))
    for x in points(8):
        gradient(x)
    return gradient


def call_often(gradient):
    for x in points(600):
        gradient(x)


def check_after(change, model):
    """After the change the compiled model is right, as the model is now."""
    gradient = compiled_gradient(model)
    change()
    for x in points(8):
        value, slope = gradient(x)
        expected, right = dg.value_and_grad(dg.delayed(model))(x)
        assert value == expected
        assert_array_equal(slope, right)


@pytest.fixture
def fresh_state():
    state.scale, state.calls, state.array, state.large = 1.0, 0, np.ones(5), np.ones(1000)


pytestmark = pytest.mark.usefixtures("synchronous", "fresh_state")


def scaled_by_state(x):
    return np.sum(x) * state.scale


def test_an_attribute_is_set():
    check_after(lambda: setattr(state, "scale", 3.0), scaled_by_state)


def scaled_by_global(x):
    return np.sum(x * FACTOR)


FACTOR = 2.0


def test_a_global_is_bound_again(monkeypatch):
    check_after(lambda: monkeypatch.setitem(globals(), "FACTOR", 5.0), scaled_by_global)


def test_a_function_is_defined_again(monkeypatch):
    def twice(x):
        return helper(x) * 2.0

    check_after(
        lambda: monkeypatch.setitem(globals(), "helper", np.cos), lambda x: np.sum(twice(x))
    )


def helper(x):
    return np.sin(x)


def test_a_variable_of_an_enclosing_function_changes():
    factor = 1.0

    def model(x):
        return np.sum(x**2) * factor

    def change():
        nonlocal factor
        factor = -2.0

    check_after(change, model)


def times_array(x):
    return np.sum(x * state.array)


def test_a_small_array_changes_in_place():
    check_after(lambda: state.array.__setitem__(slice(None), 7.0), times_array)


def test_a_small_array_of_which_the_model_uses_a_function_changes_in_place():
    check_after(
        lambda: state.array.__setitem__(0, 7.0), lambda x: np.sum(x * np.sin(state.array[:5]))
    )


def times_large(x):
    return np.sum(x) * np.sum(state.large)


class Scale:
    shared = 1.0

    def __init__(self):
        self.scale, self.inner, self.table = 1.0, types.SimpleNamespace(scale=1.0), {"a": [1.0]}

    def __call__(self, x):
        return np.sum(x) * self.scale

    def method(self, x):
        return self.helper(x) * self.inner.scale

    def helper(self, x):
        return np.sum(x) * self.scale


held = Scale()
HELD = {  # a model, and a change of what it refers to
    "a callable object": (held, lambda: setattr(held, "scale", 3.0)),
    "a method": (held.method, lambda: setattr(held, "scale", 4.0)),
    "an object in an object": (held.method, lambda: setattr(held.inner, "scale", 5.0)),
    "partial": (functools.partial(Scale.method, held), lambda: setattr(held, "scale", 6.0)),
    "a list in a dict": (
        lambda x: np.sum(x) * held.table["a"][0],
        lambda: held.table["a"].__setitem__(0, 7.0),
    ),
    "a dict": (lambda x: np.sum(x) * held.table["a"][0], lambda: held.table.update(a=[8.0])),
    "a class": (lambda x: np.sum(x) * Scale.shared, lambda: setattr(Scale, "shared", 9.0)),
    "the class of an object": (
        lambda x: np.sum(x) * held.shared,
        lambda: setattr(Scale, "shared", 10.0),
    ),
    "an attribute instead of that of the class": (
        lambda x: np.sum(x) * held.shared,
        lambda: setattr(held, "shared", 11.0),
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_objects_and_containers_hold_changes(name):
    model, change = HELD[name]
    check_after(change, model)


def test_a_variable_that_is_not_assigned_yet():
    def model(x):
        return np.sum(x) if x[0] < 1e9 else later

    check_after(lambda: None, model)
    later = 1.0


def test_a_recursive_function_is_not_kept_alive():
    def make():
        def model(x, count=3):
            return model(2.0 * x, count - 1) if count else np.sum(x)

        compiled_gradient(model)
        return weakref.ref(model)

    gone = make()
    gc.collect()
    assert gone() is None


def test_a_large_array_that_changes_in_place_is_an_error_at_the_next_check():
    gradient = compiled_gradient(times_large)
    state.large[:] = 2.0
    with pytest.raises(dg.NondeterministicModelError, match=r"'times_large'.*pass that as an arg"):
        call_often(gradient)


def counting(x):
    return np.sum(x) * (1.0 + (next(counter) > 9))


counter = itertools.count()


def test_a_counter_is_an_error_or_right():
    gradient = dg.value_and_grad(dg.delayed(counting, compile=True))
    with pytest.raises(dg.NondeterministicModelError, match="'counting'"):
        call_often(gradient)


def test_random_numbers_are_never_repeated():
    """Its program differs from the model at once, so that there is none."""

    def noisy(x):
        return np.sum(x**2) * np.random.random() * python_random.random()

    gradient = dg.value_and_grad(dg.delayed(noisy, compile=True))
    assert len({gradient(X)[0] for _ in range(12)}) == 12


def test_only_models_of_autograd_are_compiled():
    with pytest.raises(ValueError, match="compile=True is for models of backend 'autograd'; fou"):
        dg.delayed(np.sum, backend="registered", compile=True)
