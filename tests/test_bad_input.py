"""Bad input gets an error that says what to do, and never a wrong number."""

import copy
import dataclasses
import functools
import json
import math
import operator
import pickle
import threading

import autograd.numpy as anp
import dask
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.sparse
import scipy.special
from autograd.extend import defvjp, primitive
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

X = np.array([0.3, 0.5, 0.9])
C = np.array([1.0, 2.0, 3.0])
MATRIX = np.arange(9.0).reshape(3, 3) + 5.0 * np.eye(3)


pytestmark = pytest.mark.usefixtures("synchronous")


@dg.delayed
def energy(x):
    return anp.sum(x**2)


@dg.delayed
def double(x):
    return 2.0 * x


def notes(error):
    return " ".join(getattr(error, "__notes__", []))


# ------------------------------------------------------------------- what is no real number


NOT_REAL_NUMBERS = {
    "an array": (lambda x: 2.0 * x, r"float64\[3\]"),
    "one entry": (lambda x: x[:1], r"float64\[1\]"),
    "an integer": (lambda x: 3, "its value is 3"),
    "a complex number": (lambda x: 1j * anp.sum(x), r"complex128\[\]"),
    "a dict": (lambda x: {"a": anp.sum(x)}, "'a': float64"),
}


@pytest.mark.parametrize("kind", NOT_REAL_NUMBERS)
def test_a_gradient_needs_one_real_number(kind, scheduler):
    fun, found = NOT_REAL_NUMBERS[kind]
    model = dg.delayed(fun, name="model")
    with pytest.raises(TypeError, match=f"gradient of 'model' was asked for.*{found}.*use vjp"):
        dg.grad(lambda x: model(x))(X)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: dg.grad(lambda x: x)(x),
        lambda x: dg.grad(lambda x: dg.sum([x, x]))(x),
        lambda x: dask.compute(dg.differentiate(dg.sum([v := dg.variable(x), v]), v)),
        lambda x: dask.compute(dg.differentiate(v := dg.variable(x), v)),
    ],
)
def test_also_where_the_output_meets_no_model(ask):
    with pytest.raises(TypeError, match=r"its value is float64\[3\].*use vjp"):
        ask(X)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (None, "None"),
        ("text", "'text'"),
        (np.ones(3), r"float64\[3\]"),
        (True, "True"),
        (2j, "2j"),
        (object(), "object"),
        (dask.delayed(1.0), "Delayed"),
    ],
)
def test_a_function_must_return_a_node(output, found):
    with pytest.raises(TypeError, match=f"'objective' must return a node.*found {found}"):
        dg.grad(named(lambda x: output, "objective"))(X)
    with pytest.raises(TypeError, match=f"'objective' must return a node or a pytree.*{found}"):
        dg.vjp(named(lambda x: output, "objective"), X)


def named(fun, name):
    fun.__name__ = name
    return fun


def test_a_list_of_nodes_is_no_output_of_a_gradient():
    with pytest.raises(TypeError, match=r"found list\(CallNode\): add the nodes up, or use vjp"):
        dg.grad(lambda x: [energy(x)])(X)


def test_has_aux_needs_a_pair():
    for output in (lambda x: energy(x), lambda x: [energy(x), 1], lambda x: (energy(x), 1, 2)):
        with pytest.raises(TypeError, match=r"must return a pair .*has_aux=True; found"):
            dg.value_and_grad(output, has_aux=True)(X)


# --------------------------------------------------------------- what the output does not use


def test_an_argument_that_is_not_used_gets_zeros_and_a_warning_that_names_it(scheduler):
    parameters = {"w": X, "n": 3, "name": "text", "b": [1.0, 2]}
    derivative = dg.value_and_grad(named(lambda x, parameters: energy(x), "loss"), argnums=(0, 1))
    with pytest.warns(UserWarning, match="output of 'loss' does not depend on 'parameters'"):
        value, (first, second) = derivative(X, parameters)
    assert_allclose(value, np.sum(X**2))
    assert_allclose(first, 2 * X)
    assert_array_equal(second["w"], np.zeros(3))
    assert second["n"] is None
    assert second["name"] is None
    assert second["b"] == [0.0, None]


def test_an_argument_that_the_model_ignores_is_not_used():
    model = dg.delayed(lambda x, y: anp.sum(x), name="model")
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        _, (_, second) = dg.value_and_grad(model, argnums=(0, 1))(X, 2 * X)
    assert_array_equal(second, np.zeros(3))


def test_integers_in_a_pytree_get_none():
    model = dg.delayed(lambda p: p["a"] * p["n"] + p["list"][0])
    gradient = dg.grad(model)({"a": 2.0, "n": 3, "list": [1.0, True], "s": "text", "z": None})
    assert gradient == {"a": 3.0, "n": None, "list": [1.0, None], "s": None, "z": None}


# ------------------------------------------------------------------ a node used as an array


MISUSES = {
    "np.sin": np.sin,
    "np.sum": np.sum,
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "autograd's sin": anp.sin,
    "np.asarray": np.asarray,
    "np.array of a list": lambda x: np.array([x, x]),
    "adding with out": lambda x: np.add(x, 1.0, out=np.ones(3)),
    "a ufunc's method": lambda x: np.add.reduce(x),
    "into an array": lambda x: operator.iadd(np.ones(3), x),
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "if": lambda x: 1.0 if x else 2.0,
    "iteration": list,
    "unpacking": lambda x: operator.add(*x),
    "len": len,
    "in": lambda x: 1.0 in x,
    "as an index": lambda x: [1, 2][x],
    "equality": lambda x: x == 0.5,
    "inequality": lambda x: x != 0.5,
    "less": lambda x: x < 0.5,
    "greater or equal": lambda x: x >= 0.5,
    "abs": abs,
    "round": round,
    "floor division": lambda x: x // 2.0,
    "reflected floor division": lambda x: 2.0 // x,
    "remainder": lambda x: x % 2.0,
    "divmod": lambda x: divmod(x, 2.0),
    "assignment": lambda x: operator.setitem(x, 0, 1.0),
    "formatting": lambda x: f"{x:.3f}",
    "math": math.sin,
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_node_is_no_array(misuse):
    for node in (dg.variable(X, "x"), energy(dg.variable(X))):
        with pytest.raises(TypeError, match=r"<.*(x|energy)>, which has no value.*dg\.delayed"):
            MISUSES[misuse](node)


@pytest.mark.parametrize("attribute", ["shape", "T", "sum", "dtype", "copy", "real"])
def test_a_node_has_no_attributes_of_an_array(attribute):
    with pytest.raises(AttributeError, match=rf"\.{attribute} was asked of .*energy.*dg\.delayed"):
        getattr(energy(X), attribute)
    assert not hasattr(energy(X), attribute)


def test_a_node_does_not_go_into_an_array():
    with pytest.raises(ValueError, match="sequence") as caught:
        np.zeros(3)[0] = energy(X)
    assert "dg.delayed" in str(caught.value.__cause__)


def test_nodes_are_equal_to_themselves_alone_so_that_they_stand_in_sets_and_dicts():
    first, second = energy(X), energy(X)
    assert first == first
    assert len({first, second, first}) == 2
    assert {first: 1}[first] == 1


# ------------------------------------------------------------- nodes where they are not found


@dataclasses.dataclass
class Unregistered:
    inside: object


class Holder:
    def __init__(self, inside):
        self.inside = inside

    def model(self, y):
        return y * self.inside

    __call__ = model


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside


def object_array(x):
    array = np.empty(2, dtype=object)
    array[:] = [Unregistered(x), None]
    return array


HIDING_PLACES = {
    "an unregistered dataclass": Unregistered,
    "a list in a dataclass": lambda x: Unregistered([1, {"a": x}]),
    "a dataclass in a dataclass": lambda x: Unregistered(Unregistered(x)),
    "an object": Holder,
    "slots": Slotted,
    "a set": lambda x: {x},
    "a frozen set": lambda x: frozenset([x, 1.0]),
    "the values of a dict": lambda x: {"a": x}.values(),
    "the items of a dict": lambda x: {"a": x}.items(),
    "an object array": object_array,
    "a partial": lambda x: functools.partial(pow, x),
    "a function": lambda x: lambda: x,
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_a_node_that_would_be_taken_for_a_constant_is_an_error(place):
    hide = HIDING_PLACES[place]
    told = "holds <Variable x>; pass nodes as arguments.*register the class with optree"
    model = dg.delayed(lambda y, other: y, name="model")
    with pytest.raises(TypeError, match=f"an argument of model 'model' is .* that {told}"):
        dg.grad(lambda x: model(x, hide(x)))(2.0)
    with pytest.raises(TypeError, match=f"an argument of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.map_sum(named(lambda i, y: i, "term"), [1.0], hide(x)))(2.0)
    with pytest.raises(TypeError, match=f"the items of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.map_sum(named(lambda i, y: i, "term"), [1.0, hide(x)], x))(2.0)
    with pytest.raises(TypeError, match=f"the items of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.reduce_sum(named(lambda i, y: i, "term"), [1.0, hide(x)], x))(2.0)


def closed_over(x):
    return lambda y: y * x


def closed_over_list(x):
    values = [x]
    return lambda y: y * values[0]


def default(x):
    return lambda y, z=x: y * z


def keyword_default(x):
    return lambda y, *, z=x: y * z


FUNCTIONS = {
    "a closure": closed_over,
    "a list in a closure": closed_over_list,
    "a function in a closure": lambda x: closed_over_list(closed_over(x)),
    "a default": default,
    "a default of a keyword": keyword_default,
    "a partial": lambda x: functools.partial(operator.mul, x),
    "a keyword of a partial": lambda x: functools.partial(pow, exp=x),
    "a list in a partial": lambda x: functools.partial(operator.mul, [x]),
    "a partial of a closure": lambda x: functools.partial(closed_over(x), 1.0),
    "a bound method": lambda x: Holder(x).model,
    "an object that is called": Holder,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_node_within_a_models_function_is_an_error(kind):
    told = "that holds <Variable x>; pass nodes as arguments"
    with pytest.raises(TypeError, match=f"the function of model 'model' is .* {told}"):
        dg.grad(lambda x: dg.delayed(FUNCTIONS[kind](x), name="model")(x))(2.0)
    for add_up in (dg.map_sum, dg.reduce_sum):
        model = functools.partial(dg.delayed, name="model")
        with pytest.raises(TypeError, match=f"the function of model 'model' is .* {told}"):
            dg.grad(lambda x: add_up(model(FUNCTIONS[kind](x)), [1.0, 2.0], x))(2.0)  # noqa: B023


def test_a_long_argument_is_not_searched_to_its_end():
    """Recording a call takes microseconds, whatever its constants hold."""
    looked_at = []

    class Counted(set):
        def __iter__(self):
            for number in range(10_000):
                looked_at.append(number)
                yield number

    dg.delayed(len)(Counted())
    assert 0 < len(looked_at) <= 100


# ----------------------------------------------------------- plain NumPy where autograd's is due


def assigned(z, index, value):
    z[index] = value
    return anp.sum(z**2)


RIGHT = {
    "np.sin": lambda x: np.sum(np.sin(x)),
    "np.dot": lambda x: np.dot(C, x),
    "matmul": lambda x: anp.sum((MATRIX @ x) ** 2),
    "array on the left": lambda x: anp.sum(C / x - C**x),
    "np.float64 on the left": lambda x: np.float64(2.0) ** x[0] - np.float64(3.0) / x[1],
    "np.linalg.norm": lambda x: np.linalg.norm(x),
    "np.concatenate": lambda x: anp.sum(np.concatenate([x, C]) ** 2),
    "np.stack": lambda x: anp.sum(np.stack([x, x]) ** 2),
    "np.where": lambda x: anp.sum(np.where(C > 1, x, 0.0) ** 2),
    "np.where on x": lambda x: anp.sum(np.where(x > 0.4, x, 0.0) ** 2),
    "np.array of a list": lambda x: np.sum(np.array([x[0], x[1]]) ** 2),
    "np.array of x": lambda x: np.array(x).sum(),
    "np.asarray": lambda x: anp.sum(np.asarray(x) ** 2),
    "np.full": lambda x: anp.sum(np.full(3, x[0])),
    "np.maximum": lambda x: np.sum(np.maximum(x, 0.4)),
    "np.clip": lambda x: anp.sum(np.clip(x, 0.4, 0.8)),
    "np.cumsum": lambda x: anp.sum(np.cumsum(x) ** 2),
    "np.prod": lambda x: np.prod(x),
    "np.var": lambda x: np.var(x),
    "np.max": lambda x: np.max(x),
    "np.argmax": lambda x: x[np.argmax(x)] ** 2,
    "np.argsort": lambda x: anp.sum(x[np.argsort(x)] * C),
    "np.sort": lambda x: np.sort(x)[0],
    "np.einsum": lambda x: np.einsum("i,i->", C, x),
    "np.outer": lambda x: anp.sum(np.outer(x, x)),
    "np.diff": lambda x: anp.sum(np.diff(x) ** 2),
    "np.copy": lambda x: anp.sum(np.copy(x) ** 2),
    "np.real": lambda x: anp.sum(np.real(x) ** 2),
    "np.vectorize": lambda x: anp.sum(np.vectorize(lambda v: v * v)(x)),
    "np.linalg.solve by autograd": lambda x: anp.sum(anp.linalg.solve(MATRIX, x) ** 2),
    "an object array": lambda x: np.sum(assigned_objects(x)),
    "an operator in place": lambda x: anp.sum(operator.imul(x, C) ** 2),
    "a loop": lambda x: sum([v * v for v in x]),
    "math.prod": lambda x: math.prod(x),
    "max": lambda x: max(x) ** 2,
    "branches": lambda x: x[1] ** 2 if x[0] > 0.1 and not np.isnan(x).any() else 0.0,
    "shapes": lambda x: x[0] * len(x) * np.size(x) * x.shape[0],
    "astype": lambda x: anp.sum(x.astype(float) ** 2),
    "copy.copy": lambda x: anp.sum(copy.copy(x) ** 2),
    "a masked array on the left": lambda x: anp.sum(np.ma.masked_array(C, [0, 1, 0]) * x),
    "np.random of no variable": lambda x: x[0] * np.random.default_rng(0).normal(),
    "autograd's full_like": lambda x: anp.sum(anp.full_like(C, x[0]) * x),
    "full_like of x": lambda x: anp.sum(anp.full_like(x, 2.0) * x),
    "a full_like of arrays": lambda x: anp.sum(anp.full_like(MATRIX, x) * MATRIX),
}

REFUSED = {
    "np.asarray with a dtype": lambda x: anp.sum(np.asarray(x, dtype=float)),
    "np.array of numbers with a dtype": lambda x: anp.sum(np.array([x[0], x[1]], dtype=float)),
    "np.float64": lambda x: np.float64(x[0]) * 2.0,
    "float": lambda x: float(x[0]) * x[1],
    "int": lambda x: int(x[0] * 10) * x[1],
    "complex": lambda x: complex(x[0]).real,
    "math.sin": lambda x: math.sin(x[0]),
    "math.floor": lambda x: math.floor(x[0]) * x[1],
    "math.fsum": math.fsum,
    "round": lambda x: round(x[0], 1) * x[1],
    "tolist": lambda x: sum(x.tolist()),
    "item": lambda x: x[0].item() * 2.0,
    "assignment into zeros": lambda x: assigned(np.zeros(3), 0, x[0]),
    "assignment of a slice": lambda x: assigned(np.zeros(3), slice(None), x),
    "assignment into x": lambda x: assigned(x, 0, 1.0),
    "adding in place to an array": lambda x: anp.sum(operator.iadd(C.copy(), x)),
    "np.add.at": lambda x: np.add.at(np.zeros(3), [0, 1, 2], x),
    "np.add.reduce": np.add.reduce,
    "np.put": lambda x: np.put(np.zeros(3), [0], x),
    "np.copyto": lambda x: np.copyto(np.zeros(3), x),
    "out=": lambda x: np.multiply(x, C, out=np.zeros(3)),
    "np.interp at x": lambda x: anp.sum(np.interp(x, [0.0, 1.0], [0.0, 2.0])),
    "np.interp in x": lambda x: np.interp(0.5, [0.0, 1.0, 2.0], x),
    "np.clip between x": lambda x: anp.sum(np.clip(C, x[0], x[2])),
    "np.exp of an object array": lambda x: np.sum(np.exp(np.array([x[0], x[1]]))),
    "np.linalg.solve": lambda x: anp.sum(np.linalg.solve(MATRIX, x)),
    "np.linalg.det": lambda x: np.linalg.det(x[:, None] * MATRIX),
    "np.fft.fft": lambda x: anp.sum(anp.abs(np.fft.fft(x))),
    "np.nditer": lambda x: sum([float(v) for v in np.nditer(x)]),
    "np.fromiter": lambda x: anp.sum(np.fromiter(x, float)),
    "np.linspace": lambda x: anp.sum(np.linspace(0.0, x[0], 3)),
    "np.random of x": lambda x: np.random.default_rng(0).normal(x[0], 1.0),
    "a masked array on the right": lambda x: anp.sum(x * np.ma.masked_array(C, [0, 1, 0])),
    "np.matrix": lambda x: anp.sum(np.matrix(MATRIX, copy=False) * x[:, None]),
    "pandas": lambda x: (pandas_series(C) * x).sum(),
    "scipy.special": lambda x: anp.sum(scipy.special.spence(x)),
    "scipy.special.logsumexp": scipy.special.logsumexp,
    "scipy.linalg": lambda x: anp.sum(scipy.linalg.solve(MATRIX, x)),
    "scipy.sparse": lambda x: anp.sum(scipy.sparse.csr_array(MATRIX) @ x),
    "scipy.interpolate": lambda x: scipy.interpolate.CubicSpline([0, 1, 2], x)(0.5),
    "scipy.integrate": lambda x: scipy.integrate.quad(lambda u: u * x[0], 0, 1)[0],
    "solve_ivp": lambda x: scipy.integrate.solve_ivp(lambda u, y: -y * x[0], (0, 1), [1.0]).y[0, 1],
    "json": lambda x: json.loads(json.dumps(x[0])),
    "str": lambda x: float(str(x[0])),
    "formatting": lambda x: float(f"{x[0]:.17g}"),
    "pickle": lambda x: anp.sum(pickle.loads(pickle.dumps(x))),
    "copy.deepcopy": lambda x: anp.sum(x) + anp.sum(copy.deepcopy(x)),
    "memoryview": lambda x: anp.sum(np.array(memoryview(x))),
    "an integer scalar": lambda x: (x * 10).astype(int)[0] * x[0],
}


def pandas_series(values):
    return pytest.importorskip("pandas").Series(values)


def assigned_objects(x):
    array = np.empty(2, dtype=object)
    array[0], array[1] = x[0] ** 2, x[1]
    return array


def differences(fun, x, step=1e-6):
    sides = [(fun(x + step * e), fun(x - step * e)) for e in np.eye(len(x))]
    return np.array([(up - down) / (2 * step) for up, down in sides])


@pytest.mark.parametrize("usage", RIGHT)
def test_plain_numpy_that_works_gives_the_right_gradient(usage):
    gradient = dg.grad(dg.delayed(RIGHT[usage], name="model"))(X)
    assert_allclose(gradient, differences(RIGHT[usage], X), atol=1e-8)


@pytest.mark.parametrize("usage", REFUSED)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_plain_numpy_that_does_not_work_is_an_error_with_a_hint(usage):
    model = dg.delayed(REFUSED[usage], name="model")
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        dg.grad(lambda x: energy(x) + model(x))(X)
    assert "forward pass of model 'model', called with (float64[3])" in notes(caught.value)
    assert "use autograd.numpy in the place of numpy" in notes(caught.value)


@pytest.mark.parametrize(
    "fun", [lambda x: np.where(C[0] > 0, x[0], 0.0), lambda x: np.tensordot(C, x, 1)]
)
def test_an_array_of_boxes_is_no_result(fun):
    with pytest.raises(TypeError, match=r"'model' returned an array of Python objects.*autograd"):
        dg.grad(dg.delayed(fun, name="model"))(X)


# ------------------------------------------------------- where autograd's own rules are wrong


W = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7], [-0.2, 0.9, 0.4]])
CASTS = {  # piecewise constant: between its jumps the derivative of a cast is zero
    "astype": lambda x: anp.sum((x * 10).astype(int) * x),
    "astype bool": lambda x: anp.sum((x + 1.0).astype(bool) * x),
    "array with a dtype": lambda x: anp.sum(anp.array(x * 10, dtype=int) * x),
    "list with a dtype": lambda x: anp.sum(anp.array([x[0] * 10, x[1]], dtype=int) * x[:2]),
    "sum with a dtype": lambda x: anp.sum(anp.sum(x[None] * 10, axis=0, dtype=int) * x),
    "floor": lambda x: anp.sum(anp.floor(x * 10) * x),
    "autograd's integer": lambda x: anp.int64(x[0] * 10) * x[1],
}


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_to_integers_has_no_derivative(cast):
    x = X + 0.013  # away from the jumps
    gradient = dg.grad(dg.delayed(CASTS[cast], name="model"))(x)
    assert_allclose(gradient, differences(CASTS[cast], x), atol=1e-8)


UNSEEN = {
    "where": lambda x: anp.sum(x, where=C > 1),
    "where of a method": lambda x: x.sum(where=C > 1),
    "where of mean": lambda x: anp.mean(x, where=C > 1),
    "where of prod": lambda x: anp.prod(x, where=C > 1),
    "where of max": lambda x: anp.max(x, where=C > 1, initial=0.0),
    "where of plain NumPy": lambda x: np.sum(x, where=C > 1),
    "correction of var": lambda x: anp.var(x, correction=1),
    "correction of std": lambda x: anp.std(x, correction=1),
    "initial of min": lambda x: anp.min(x, initial=-1.0),
    "out of sum": lambda x: anp.sum(x[None], axis=0, out=np.zeros(3))[0],
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_an_argument_that_autograds_rule_does_not_look_at_is_an_error(kind):
    argument = kind.split()[0]
    with pytest.raises(NotImplementedError, match=rf"does not look at.* {argument}=") as caught:
        dg.grad(dg.delayed(UNSEEN[kind], name="model"))(X)
    assert "forward pass of model 'model'" in notes(caught.value)


SEEN = {
    "ddof": lambda x: anp.var(x, ddof=1),
    "keepdims": lambda x: anp.sum(anp.mean(x[None] * W, axis=1, keepdims=True) * W),
    "dtype": lambda x: anp.sum(anp.sum(x * W, 1, float) * C),
    "initial of sum": lambda x: anp.sum(x * x, initial=3.0),
    "initial of prod": lambda x: anp.prod(x, initial=3.0),
}


@pytest.mark.parametrize("kind", SEEN)
def test_the_other_arguments_of_a_reduction_are_right(kind):
    gradient = dg.grad(dg.delayed(SEEN[kind]))(X)
    assert_allclose(gradient, differences(SEEN[kind], X), atol=1e-8)


@pytest.mark.parametrize(
    ("fun", "name"),
    [
        (lambda x: anp.multiply(x, C, out=np.zeros(3)), "multiply"),
        (lambda x: anp.cumsum(x, dtype=float), "cumsum"),
        (lambda x: anp.diff(x, prepend=0.0), "diff"),
    ],
)
def test_an_argument_that_a_rule_does_not_take_is_an_error_that_names_the_primitive(fun, name):
    with pytest.raises(TypeError, match=f"rule of the primitive '{name}' does not take all arg"):
        dg.grad(dg.delayed(fun))(X)


def test_a_box_that_outlived_its_trace_is_an_error():
    kept = []

    def model(x):
        kept.append(anp.exp(x))
        return anp.sum(kept[0] * x)

    derivative = dg.grad(dg.delayed(model, name="model"))
    assert_allclose(derivative(X), (1 + X) * np.exp(X))
    with pytest.raises(TypeError, match="model 'model' returned ArrayBox"):
        derivative(X)


# --------------------------------------------------------------------------- what models return


RETURNED = {
    "None": (lambda x: None, "None"),
    "a string": (lambda x: "text", "'text'"),
    "an object": (lambda x: object(), "object"),
    "a set": (lambda x: {1.0}, "set"),
    "a generator": (lambda x: (v for v in x), "generator"),
    "a dict with an object": (lambda x: {"a": object()}, "object"),
    "an unregistered dataclass": (lambda x: Unregistered(1.0), "Unregistered"),
    "a node": (lambda x: double(x), "CallNode; .*inside a model, call the plain function"),
    "nodes": (lambda x: [double(2.0)], "CallNode; .*inside a model, call the plain function"),
}


@pytest.mark.parametrize("kind", RETURNED)
@pytest.mark.parametrize("keep", ["auto", "recompute"])
def test_a_model_returns_numbers(kind, keep):
    fun, found = RETURNED[kind]
    found, _, told = found.partition("; ")
    model = dg.delayed(fun, name="model", keep=keep)
    with pytest.raises(TypeError, match=f"model 'model' returned {found}; expected.*{told}"):
        dg.grad(model)(X)
    with pytest.raises(TypeError, match=f"model 'model' returned {found}; expected.*{told}"):
        dg.vjp(lambda x: model(x), X)


def test_keep_gradient_needs_one_real_number():
    model = dg.delayed(lambda x: 2.0 * x, name="model", keep="gradient")
    with pytest.raises(ValueError, match=r"keep='gradient' needs .*'model' returned float64\[3\]"):
        dg.grad(lambda x: energy(model(x)))(X)


def test_terms_of_different_shapes_are_an_error(scheduler):
    terms = lambda x: dg.map_sum(lambda i, x: x[:i], [1, 2], x)  # noqa: E731
    with pytest.raises(
        ValueError, match=r"one structure and shape; found float64\[1\] and float64"
    ):
        dg.grad(lambda x: energy(terms(x)))(X)


# ----------------------------------------------------------------------------------- argnums


@pytest.mark.parametrize("argnums", [True, "x", 0.5, None, (0, "x"), X, np.ones((2, 2)), ()])
@pytest.mark.parametrize("of", [dg.value_and_grad, dg.grad, dg.jacobian, dg.hessian])
def test_argnums_are_numbers_and_arguments_go_in_a_second_call(of, argnums):
    with pytest.raises(ValueError, match=r"argnums=.* must be numbers.* go in a second call"):
        of(energy, argnums)


@pytest.mark.parametrize("of", [dg.value_and_grad, dg.grad, dg.jacobian, dg.hessian, dg.vjp])
def test_a_function_comes_first(of):
    with pytest.raises(
        TypeError, match=r"the first argument of dg\..* is a function.* found float64"
    ):
        of(X, energy)


@pytest.mark.parametrize("of", [dg.jvp, dg.hvp])
def test_functions_come_before_primals_and_tangents(of):
    with pytest.raises(TypeError, match=r"the first argument of dg\..* is a function"):
        of((X,), energy, (X,))


@pytest.mark.parametrize("argnums", [1, -1, (0, 1), [2]])
def test_argnums_are_numbers_of_arguments(argnums):
    with pytest.raises(ValueError, match=r"argnums=.* of 'energy' must be numbers.* called with 1"):
        dg.grad(energy, argnums=argnums)(X)


def test_argnums_name_an_argument_once():
    with pytest.raises(ValueError, match=r"argnums=\(0, 0\) of 'energy' names an argument twice"):
        dg.grad(energy, argnums=(0, 0))(X)


def test_argnums_are_also_numpys_integers():
    assert_allclose(dg.grad(energy, argnums=np.int64(0))(X), 2 * X)
    (gradient,) = dg.grad(energy, argnums=np.array([0]))(X)
    assert_allclose(gradient, 2 * X)


WITHOUT_DERIVATIVE = {
    "an integer": (3, "3"),
    "integers": (np.arange(3), r"int64\[3\]"),
    "a list of integers": ([1, 2], r"list\(1, 2\)"),
    "a boolean": (True, "True"),
    "a string": ("text", "'text'"),
    "None": (None, "None"),
    "an empty dict": ({}, "{}"),
    "an object array": (np.array([1.0, None], dtype=object), r"object\[2\]"),
    "a structured array": (np.zeros(3, dtype=[("a", float)]), r"\[3\]"),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), "datetime64"),
    "a set": ({1.0}, "set"),
    "an unregistered dataclass": (Unregistered(1.0), "Unregistered"),
    "a Dask collection": (dask.delayed(1.0), "Delayed"),
}


@pytest.mark.parametrize("kind", WITHOUT_DERIVATIVE)
def test_an_argument_without_derivative_is_an_error_that_names_it(kind):
    value, found = WITHOUT_DERIVATIVE[kind]
    with pytest.raises(TypeError, match=f"argument 'x' of 'energy' is .*{found}.*leave it out"):
        dg.grad(energy)(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.ma.masked_array(X, [0, 1, 0]), r"MaskedArray float64\[3\]; convert it to a plain"),
        ([1.0, np.ma.masked_array(X)], r"MaskedArray float64\[3\]; convert it to a plain"),
        ([1.0, np.array([1.0, None], dtype=object)], r"ndarray object\[2\]; convert it"),
        ([1.0, {2.0}], "set; expected float or complex arrays"),
        ([1.0, Unregistered(1.0)], "Unregistered; expected .* registered dataclasses"),
        ([1.0, dask.delayed(1.0)], "a Dask collection; compute it first"),
    ],
)
def test_a_variable_holds_plain_arrays(value, found):
    with pytest.raises(TypeError, match=f"'x' holds {found}"):
        dg.grad(energy)(value)
    with pytest.raises(TypeError, match=f"'weights' holds {found}"):
        dg.variable(value, name="weights")


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_variable_is_no_matrix_and_no_table():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match=r"'x' holds matrix float64\[1, 3\]; convert it"):
        dg.grad(energy)(np.asmatrix(X))
    with pytest.raises(TypeError, match="argument 'x' of 'energy' is Series"):
        dg.grad(energy)(pandas.Series(X))
    with pytest.raises(TypeError, match="'variable' holds Series"):
        dg.variable(pandas.Series(X))


# ------------------------------------------------------------------- derivatives of derivatives


@pytest.mark.parametrize(
    "objective",
    [
        lambda x: energy(dg.grad(energy)(x)),
        lambda x: energy(dg.value_and_grad(lambda y: energy(y))({"a": x})),
        lambda x: energy(dg.grad(lambda y: energy(y + x))(X)),
        lambda x: energy(dg.grad(lambda y, z: energy(y + z))(X, x)),
        lambda x: dg.vjp(energy, x)[0],
        lambda x: energy(dg.vjp(lambda y: double(x), X)[0]),
        lambda x: energy(dg.variable([x])),
    ],
)
def test_a_gradient_of_a_gradient_is_an_error_that_names_hvp(objective):
    with pytest.raises(TypeError, match=r"<.*x>, which depends on the variables of another.* hvp"):
        dg.grad(objective)(X)


def test_a_variable_of_the_users_own_is_a_constant():
    other = dg.variable(C)
    gradient = dg.grad(lambda x: energy(x * other))(X)
    assert_allclose(gradient, 2 * X * C**2)


# --------------------------------------------------------------------------------- differentiate


def test_differentiate_needs_a_node_and_variables():
    v = dg.variable(X)
    with pytest.raises(TypeError, match=r"differentiate needs a node.* found 3\.0"):
        dg.differentiate(3.0, v)
    with pytest.raises(TypeError, match=r"differentiate needs a node.* found DelayedModel"):
        dg.differentiate(energy, v)
    for wrt, found in ((X, r"float64\[3\]"), (energy(v), "CallNode"), ([v, 1.0], r"1\.0")):
        with pytest.raises(TypeError, match=f"wrt must be a variable.* found {found}"):
            dg.differentiate(energy(v), wrt)


def test_differentiate_warns_of_a_variable_that_is_not_used():
    x, y = dg.variable({"a": X, "b": X}, "x"), dg.variable(X, "y")
    for wrt, name in ((y, "'y'"), (x["b"], r"\"x\['b'\]\"")):
        with pytest.warns(UserWarning, match=f"output of 'energy' does not depend on {name}"):
            value, gradient = dg.differentiate(energy(x["a"]), wrt)
        assert_allclose(value.compute(), np.sum(X**2))
        assert_array_equal(gradient.compute(), np.zeros(3))


# ----------------------------------------------------------------------------------- cotangents


WRONG_COTANGENTS = {
    "a shape": (np.ones(2), ValueError, r"expected shape \(3,\).* found \(2,\)"),
    "a column": (np.ones((3, 1)), ValueError, r"expected shape \(3,\).* found \(3, 1\)"),
    "a number": (1.0, ValueError, r"expected shape \(3,\).* found \(\)"),
    "a list": ([1.0, 1.0, 1.0], ValueError, r"expected the structure of the value, float64\[3\]"),
    "complex": (1j * np.ones(3), TypeError, "expected dtype float64.* found complex128"),
    "strings": (np.array(["a", "b", "c"]), TypeError, "expected dtype float64.* found <U1"),
    "objects": (np.ones(3, dtype=object), TypeError, "expected dtype float64.* found object"),
}


@pytest.mark.parametrize("kind", WRONG_COTANGENTS)
def test_a_cotangent_has_the_shape_and_dtype_of_the_value(kind):
    cotangent, error, told = WRONG_COTANGENTS[kind]
    _, pullback = dg.vjp(double, X)
    with pytest.raises(error, match=f"cotangent of 'double': {told}"):
        pullback(cotangent)
    v = dg.variable(X, "double")
    for output in (double(v), v, dg.sum([v, v])):
        output.name = "double"
        with pytest.raises(error, match=f"cotangent of 'double': {told}"):
            dask.compute(dg.differentiate(output, v, cotangent=cotangent))


@pytest.mark.parametrize(
    "cotangent", [{"a": X}, {"a": X, "c": X}, (X, X), X, {"a": X, "b": X, "c": X}]
)
def test_a_cotangent_has_the_structure_of_the_value(cotangent):
    model = dg.delayed(lambda x: {"a": x, "b": 2.0 * x}, name="model")
    told = "cotangent of 'model': expected the structure of the value, {'a': float64"
    _, pullback = dg.vjp(model, X)
    with pytest.raises(ValueError, match=told):
        pullback(cotangent)
    v = dg.variable(X)
    with pytest.raises(ValueError, match=told):
        dask.compute(dg.differentiate(model(v), v, cotangent=cotangent))


def test_a_cotangent_for_what_has_no_derivative_is_none():
    _, pullback = dg.vjp(dg.delayed(lambda x: [3, x], name="model"), X)
    with pytest.raises(TypeError, match="cotangent of 'model': 3 has no derivative; give None"):
        pullback([1.0, X])
    assert_array_equal(pullback([None, X])[0], X)


def test_cotangents_of_narrower_kinds_are_taken():
    _, pullback = dg.vjp(double, X)
    for cotangent in (np.ones(3, dtype=int), np.ones(3, dtype=bool), np.ones(3, dtype=np.float32)):
        (gradient,) = pullback(cotangent)
        assert gradient.dtype == np.float64
        assert_array_equal(gradient, [2.0, 2.0, 2.0])


# ------------------------------------------------------------------------------------- options


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown backend 'torhc'; choose one of .*autograd"):
        dg.delayed(abs, backend="torhc")
    with pytest.raises(ValueError, match="unknown backend None"):
        dg.delayed(abs, backend=None)


@pytest.mark.parametrize("keep", ["tapes", None, [], np.ones(3)])
def test_an_unknown_keep_is_an_error_that_lists_the_known_ones(keep):
    with pytest.raises(ValueError, match=r"unknown keep=.*auto, gradient, tape, recompute"):
        dg.delayed(abs, keep=keep)


def test_a_model_is_a_function_with_a_name():
    with pytest.raises(TypeError, match=r"makes a model of a function; found float64\[3\]"):
        dg.delayed(X)
    with pytest.raises(TypeError, match="name of a model is a string; found 3"):
        dg.delayed(abs, name=3)
    for add_up in (dg.map_sum, dg.reduce_sum):
        with pytest.raises(
            TypeError, match="the model comes first, and is a function; found 'text'"
        ):
            add_up("text", [1.0])


SUMS = {
    "map_sum": lambda items, grainsize="auto": dg.map_sum(sum, items, grainsize=grainsize),
    "reduce_sum": lambda items, grainsize="auto": dg.reduce_sum(sum, items, grainsize=grainsize),
    "place": lambda items, grainsize="auto": dg.place(items, grainsize=grainsize),
}


@pytest.mark.parametrize("add_up", SUMS)
@pytest.mark.parametrize("grainsize", [0, -1, 2.5, True, "big", None, [2], np.ones(3)])
def test_a_grainsize_is_a_number_of_items(add_up, grainsize):
    with pytest.raises(ValueError, match=r"grainsize is the number of items in one task.* found"):
        SUMS[add_up]([1.0, 2.0], grainsize)


@pytest.mark.parametrize("add_up", SUMS)
@pytest.mark.parametrize("items", [[], (), np.zeros(0), np.zeros((0, 3))], ids=repr)
def test_an_empty_sum_is_an_error(add_up, items):
    with pytest.raises(ValueError, match=r"(items|sliced) is empty.* sum at least one"):
        SUMS[add_up](items)


@pytest.mark.parametrize("add_up", SUMS)
@pytest.mark.parametrize(
    ("items", "found"),
    [
        ({1.0}, "set"),
        ((v for v in X), "generator"),
        ({"a": 1.0}, "{'a'"),
        ("text", "'text'"),
        (np.array(3.0), r"float64\[\]"),
        (3.0, r"3\.0"),
        (None, "None"),
        (range(3), "range"),
    ],
)
def test_items_are_a_list_a_tuple_or_an_array(add_up, items, found):
    with pytest.raises(TypeError, match=f"(items|sliced) must be a list, a tuple.* found {found}"):
        SUMS[add_up](items)


@pytest.mark.parametrize("add_up", SUMS)
def test_items_keep_what_makes_them_more_than_an_array(add_up):
    """A masked array would lose its mask, and the sum would run over what it hides."""
    with pytest.raises(TypeError, match=r"is MaskedArray float64\[3\]; convert it .* pass a list"):
        SUMS[add_up](np.ma.masked_array(X, [0, 1, 0]))
    with pytest.raises(TypeError, match=r"is an array of Python objects, object\[2\]; pass a list"):
        SUMS[add_up](np.array([1.0, None], dtype=object))


def test_shards_have_their_own_grainsize():
    shards = dg.place([1.0, 2.0, 3.0], grainsize=2)
    for add_up in (dg.map_sum, dg.reduce_sum):
        with pytest.raises(ValueError, match="placed with grainsize 2, and grainsize=1 was asked"):
            add_up(sum, shards, grainsize=1)
    assert dg.map_sum(float, shards, grainsize=3).compute() == 6.0  # 3 is rounded down to 2


def test_a_sum_of_nodes_adds_nodes():
    with pytest.raises(TypeError, match=r"dg.sum adds up nodes; found 3.0 in place 1"):
        dg.sum([energy(X), 3.0])
    with pytest.raises(ValueError, match=r"dg\.sum of no nodes"):
        dg.sum([])


# --------------------------------------------------------------------- primitives without rules


@primitive
def ruleless(x):
    return np.sin(x)


@primitive
def half_ruled(x, y):
    return x * y


defvjp(half_ruled, lambda ans, x, y: lambda g: g * y, argnums=[0])


@primitive
def fragile(x):
    return 1.0 * x


def fragile_vjp(ans, x):
    def fragile_pullback(g):
        raise FloatingPointError("the pullback failed")

    return fragile_pullback


defvjp(fragile, fragile_vjp)


@pytest.mark.parametrize(
    ("fun", "name", "argument"),
    [
        (lambda x: anp.sum(ruleless(x)), "ruleless", "0"),
        (lambda x: anp.sum(half_ruled(C, x)), "half_ruled", "1"),
        (lambda x: anp.sum(anp.interp(x, C, C)), "interp", "0"),
        (lambda x: anp.median(x), "median", "0"),
    ],
)
def test_a_primitive_without_a_rule_is_named(fun, name, argument):
    told = f"primitive '{name}' has no derivative rule for its argument {argument}.*defvjp"
    with pytest.raises(NotImplementedError, match=told) as caught:
        dg.grad(dg.delayed(fun, name="model"))(X)
    assert "forward pass of model 'model', called with (float64[3])" in notes(caught.value)


def test_a_primitive_with_half_a_rule_works_where_it_is_enough():
    assert_allclose(dg.grad(dg.delayed(lambda x: anp.sum(half_ruled(x, C))))(X), C)


# -------------------------------------------------------------------------- errors from models


class ReactorError(Exception):
    """One whose ``__init__`` does not take its ``args``."""

    def __init__(self, temperature, *, pressure):
        super().__init__(f"{temperature} K at {pressure} bar")
        self.temperature = temperature


class LockedError(ValueError):
    pass


def raise_value(x, flag=False):
    raise ValueError("the model failed")


def raise_reactor(x, flag=False):
    raise ReactorError(300, pressure=2)


def raise_linalg(x, flag=False):
    np.linalg.inv(np.zeros((2, 2)))


def raise_by_item(item, x):
    item = item[0] if isinstance(item, list) else item
    if item == 5.0:
        raise KeyError("item five")
    return item * anp.sum(x)


def raise_in_the_pullback(x):
    return fragile(x)


@pytest.mark.parametrize(
    ("fun", "kind", "text"),
    [
        (raise_value, ValueError, "the model failed"),
        (raise_reactor, ReactorError, "300 K at 2 bar"),
        (raise_linalg, np.linalg.LinAlgError, "Singular matrix"),
    ],
)
def test_an_exception_keeps_its_type_and_names_the_model(fun, kind, text, scheduler):
    model = dg.delayed(fun, name="model")
    where = "called with (float64[3], flag=True)"
    with pytest.raises(kind, match=text) as caught:
        dg.grad(lambda x: energy(x) + model(x, flag=True))(X)
    assert f"in the forward pass of model 'model', {where}" in notes(caught.value)
    with pytest.raises(kind, match=text) as caught:
        model(X, flag=True).compute()
    assert f"in the value pass of model 'model', {where}" in notes(caught.value)


def test_an_exception_keeps_its_attributes(scheduler):
    with pytest.raises(ReactorError) as caught:
        dg.grad(dg.delayed(raise_reactor))(X)
    assert caught.value.temperature == 300


def test_an_exception_in_a_pullback_names_the_model(scheduler):
    model = dg.delayed(raise_in_the_pullback, name="model")
    with pytest.raises(FloatingPointError, match="the pullback failed") as caught:
        dg.grad(lambda x: energy(model(x)))(X)
    assert "in the backward pass of model 'model', called with (float64[3])" in notes(caught.value)


@pytest.mark.parametrize("add_up", ["map_sum", "nodes"])
def test_an_exception_in_a_sum_names_the_item(add_up, scheduler):
    def total(x):
        items = [float(i) for i in range(8)]
        if add_up == "nodes":
            items = [[dg.delayed(float)(i), 1.0] for i in items]
        return dg.map_sum(raise_by_item, items, x, grainsize=4)

    told = "pass of model 'raise_by_item'" + (", item 5" if add_up == "map_sum" else "")
    with pytest.raises(KeyError, match="item five") as caught:
        dg.grad(total)(X)
    assert f"in the forward {told}, called with (" in notes(caught.value)
    with pytest.raises(KeyError, match="item five") as caught:
        total(X).compute()
    assert f"in the value {told}, called with (" in notes(caught.value)


def test_an_exception_that_holds_a_lock_does_not_take_its_process_along(pool):
    def model(x):
        error = LockedError("locked", threading.Lock())
        error.lock = threading.Lock()
        raise error

    with dask.config.set(scheduler="processes", pool=pool):
        with pytest.raises(LockedError, match="locked") as caught:
            dg.grad(dg.delayed(model, name="model"))(X)
        assert "forward pass of model 'model'" in notes(caught.value)
        assert_allclose(dg.grad(energy)(X), 2 * X)


@pytest.mark.parametrize("name", ["sync", "threads"])
def test_a_keyboard_interrupt_is_not_swallowed(name):
    def model(x):
        raise KeyboardInterrupt

    with dask.config.set(scheduler=name), pytest.raises(KeyboardInterrupt) as caught:
        dg.grad(dg.delayed(model))(X)
    assert not notes(caught.value)


def test_a_users_own_error_gets_no_hint_about_autograd():
    with pytest.raises(ValueError, match="the model failed") as caught:
        dg.grad(dg.delayed(raise_value))(X)
    assert "autograd" not in notes(caught.value)


# ------------------------------------------------------------------------------- NaN and inf


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity_pass_through(scheduler):
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    value, gradient = dg.value_and_grad(lambda x: energy(double(x)))(x)
    assert np.isnan(value)
    assert_array_equal(gradient, 8 * x)
    total = dg.value_and_grad(lambda x: dg.map_sum(lambda i, x: i * anp.sum(x), [1.0, 2.0], x))
    value, gradient = total(np.array([np.inf, 1.0]))
    assert value == np.inf
    assert_array_equal(gradient, [3.0, 3.0])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_cotangent_may_be_nan_or_infinite(special):
    _, pullback = dg.vjp(double, X)
    (gradient,) = pullback(np.array([special, 1.0, 2.0]))
    assert_array_equal(gradient, [special, 2.0, 4.0])


def test_a_model_that_returns_a_node_is_an_error_when_it_is_only_computed():
    with pytest.raises(TypeError, match="call the plain function"):
        dg.delayed(lambda x: double(x), name="outer")(dg.variable(X)).compute()


def test_a_masked_cotangent_is_an_error():
    _, pullback = dg.vjp(lambda x: double(x), X)
    with pytest.raises(TypeError, match="would lose its mask"):
        pullback(np.ma.masked_array(np.ones(3), [False, True, False]))


# ----------------------------------------------------------------- derivatives of other kinds


def test_a_hessian_needs_numbers_with_derivatives():
    with pytest.raises(
        TypeError, match=r"argument 'x' of 'energy' is int64\[2\], which has no deriv"
    ):
        dg.hessian(energy)(np.array([1, 2]))


def test_a_check_needs_something_to_check():
    for check in (dg.check_grads, dg.taylor_rates):
        with pytest.raises(TypeError, match="no argument of 'energy' has a derivative to check"):
            check(energy)(np.array([1, 2]))
        with pytest.raises(
            ValueError, match=r"order is 1 .* found float64\[3\]; arguments go in a"
        ):
            check(energy, X)


def test_a_stack_of_no_cotangents_is_an_error():
    _, pullback = dg.vjp(dg.delayed(np.sin), X)
    with pytest.raises(ValueError, match="are stacked, and there is none of them"):
        pullback(np.ones((0, 3)))


def test_sums_of_nodes_are_of_lists():
    x = dg.variable(X)
    with pytest.raises(
        TypeError, match=r"dg.sum takes a list of nodes; found <.*>: write dg.sum\("
    ):
        dg.sum(x, x)
