"""Derivatives within recorded models, custom rules and plain numbers: compiled, with the tape's
bits."""

import collections
import gc
import weakref

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse.linalg
from autograd.extend import defvjp, primitive
from autograd.tracer import getval
from captured_calls import derivatives, is_same, model_of
from numpy.testing import assert_array_equal
from recorded import entries_of, program_of

import daskgrad as dg
from daskgrad.autodiff.programs import boxes, rewrites
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.tape import implicit, trace

pytestmark = [pytest.mark.usefixtures("synchronous"), pytest.mark.filterwarnings("ignore")]

X = np.linspace(-1.0, 1.0, 5)
TABLE = np.cos(np.arange(15.0)).reshape(3, 5)


@dg.custom_vjp
def cube(x):
    return np.asarray(x).copy() ** 3  # of plain arrays alone


cube.defvjp(lambda x: (x * x * x, x), lambda x, g: (3.0 * g * x * x,))
cube.defjvp(lambda x, t: (x[0] ** 3, 3.0 * t[0] * x[0] ** 2))


@dg.custom_vjp
def parts(x, table, name="a", scale=2.0):
    """A value with leaves that have no derivative, and arguments that are no arrays."""
    y = scale * table["rows"] @ x
    return {"y": y, "n": np.argmax(y), "of": name, "count": len(y), "sum": float(np.sum(x))}


def parts_forward(x, table, name="a", scale=2.0):
    value = parts(x, table, name, scale)
    return value, (table, scale)


def parts_backward(residuals, cotangent):
    table, scale = residuals
    g = scale * table["rows"].T @ cotangent["y"]
    return g + cotangent["sum"], None, None


parts.defvjp(parts_forward, parts_backward)


def solver(rhs, matrix):
    x = np.zeros(len(rhs))
    for _ in range(80):
        x = x - 0.1 * (matrix @ x + x**3 - rhs)
    return x


def equations(x, rhs, matrix):
    return matrix @ x + x**3 - rhs


def gmres(product, rhs):
    operator = scipy.sparse.linalg.LinearOperator((len(rhs),) * 2, product)
    return scipy.sparse.linalg.gmres(operator, rhs, rtol=1e-12)[0]


root = dg.implicit(solver, equations)
matrix_free = dg.implicit(solver, equations, gmres)
MATRIX = np.eye(5) + 0.1 * np.cos(np.arange(25.0)).reshape(5, 5)


def of_parts(x):
    found = parts(x, {"rows": TABLE}, "b", scale=3.0)
    weight = 2.0 if found["of"] == "b" else 1.0
    return weight * np.sum(found["y"]) * found["y"][found["n"]] + found["sum"] / found["count"]


def energy(x):
    return np.sum(np.exp(-(x**2)) * x) + np.sum(x[1:] * x[:-1])


def of_three_paths(t):
    """Two constant cotangents arrive first, and are added up in place afterwards."""
    return np.sum(t**3) + np.sum(t) + np.sum(t) + np.sum(t)


def newton(x):
    y = x[0]
    slope = autograd.grad(lambda y: y**3 + y - np.sum(x))
    for _ in range(5):
        y = y - (y**3 + y - np.sum(x)) / slope(y)
    return y


def of_tree(x):
    def inner(tree):
        return np.sum(tree["a"] ** 2 * tree["b"][0]) + np.sum(np.sin(tree["b"][1]))

    found = autograd.grad(inner)({"a": x, "b": (x * 2.0, x[:2])})
    return np.sum(found["a"] * x) + np.sum(found["b"][0]) * found["b"][1][0]


def of_shared_cotangent(x):
    """The cotangent ``x`` of a sum arrives before that of an entry, and is not changed."""
    pull, _ = autograd.make_vjp(lambda t: np.concatenate([t[:2] * 2.0, t[2:]]) + t)(x * 1.5)
    return np.sum(pull(x) * x) + np.sum(x)


@primitive
def cubed(x):
    return x**3


defvjp(cubed, lambda ans, x: lambda g: 3.0 * g * getval(x) ** 2)  # which looks at the number


def branching(x):
    return autograd.grad(lambda t: np.sum(t**3) if t[0] > 0.0 else np.sum(np.sin(t)))(x) @ x


WITHIN = {  # of one vector
    "grad": lambda x: np.sum(autograd.grad(energy)(x) ** 2),
    "grad of a sum of paths": lambda x: autograd.grad(of_three_paths)(x) @ x,
    "jacobian": lambda x: np.sum(autograd.jacobian(lambda t: np.tanh(TABLE @ t))(x) ** 2),
    "hessian": lambda x: np.sum(autograd.hessian(energy)(x) ** 2),
    "third derivative": lambda x: autograd.grad(autograd.grad(autograd.grad(lambda t: t**5)))(x[0]),
    "jvp": lambda x: np.sum(autograd.make_jvp(energy)(x)(x * 2.0)[1]),
    "of two arguments": lambda x: sum(
        [np.sum(g) for g in autograd.grad(lambda a, b: np.sum(a**2 * b), (0, 1))(x, x * 2.0)]
    ),
    "of a tree": of_tree,
    "of data": lambda x: np.sum(autograd.grad(lambda t: np.sum(t**3 * x))(TABLE[0])),
    "of what is indexed": lambda x: np.sum(autograd.grad(lambda t: t[[0, 0, 2]] @ x[:3])(x) * x),
    "a cotangent of somebody else's": of_shared_cotangent,
    "a primitive of the user's": lambda x: np.sum(cubed(x) * x),
    "newton": newton,
    "a branch within": branching,
    "a function of decompositions": lambda x: np.sum(
        autograd.grad(lambda t: np.linalg.eigh(anp.outer(t, t) + MATRIX + MATRIX.T)[0][0])(x)
    ),
    "of a mask": lambda x: np.sum(autograd.grad(lambda t: np.sum(t[t > 0.0] ** 3))(x) * x),
    "custom": lambda x: np.sum(cube(x) * x),
    "custom with other leaves": of_parts,
    "custom within grad": lambda x: np.sum(autograd.grad(lambda t: np.sum(twice(t) ** 2))(x) * x),
    "implicit": lambda x: np.sum(root(x, MATRIX) ** 2),
    "implicit of a matrix": lambda x: np.sum(root(TABLE[0], MATRIX * np.sum(x * x))),
    "implicit, with a solver for linear systems": lambda x: np.sum(matrix_free(x, MATRIX) ** 2),
    "value": lambda x: np.sum(x / np.max(dg.value(np.abs(x)))),
    "a value within grad": lambda x: np.sum(
        autograd.grad(lambda t: np.sum(t * dg.value(t)))(x) * x
    ),
    "masks of data": lambda x: np.sum(np.where((x > 0.0) & ~(x > 0.5) | (x < -0.5), x**2, x)),
}


@dg.custom_vjp
def twice(x):
    return 2.0 * x


twice.defvjp(lambda x: (2.0 * x, None), lambda _, g: (2.0 * g,))


def points(count=8):
    random = np.random.default_rng(11)
    return [random.normal(size=5) for _ in range(count)]


def require_same_bits(model, points):
    """Values and gradients, or errors, of a compiled model are those of one that is not."""
    compiled, plain = (model_of(model, choice) for choice in (True, False))
    for x in points:
        assert is_same(derivatives(compiled, (x,)), derivatives(plain, (x,)))


@pytest.mark.parametrize("name", WITHIN)
def test_it_is_compiled_and_has_the_bits_of_the_tape(name):
    model = WITHIN[name]
    require_same_bits(model, points())
    (entry,) = entries_of(model)
    assert entry.refusal is None
    assert entry.ways


# ------------------------------------------------------------------------------------- hostile

seen: collections.deque = collections.deque()  # which is not watched
weight = {"w": 1.0}


@dg.custom_vjp
def weighted(x):
    return weight["w"] * x


weighted.defvjp(lambda x: (weight["w"] * x, None), lambda _, g: (weight["w"] * g,))
weighted.defjvp(lambda x, t: (weight["w"] * x[0], weight["w"] * t[0]))


@dg.custom_vjp
def of_any_shape(x):
    return x[x > 0.0]


of_any_shape.defvjp(
    lambda x: (x[x > 0.0], x > 0.0), lambda there, g: (np.where(there, 1.0, 0.0) * np.sum(g),)
)


@dg.custom_vjp
def raising(x):
    if x[0] > 0.4:
        raise ValueError("the rule's own")
    return x


raising.defvjp(lambda x: (raising(x), None), lambda _, g: (g,))


def rule_of_a_closure(x):
    scale = np.max(dg.value(np.abs(x)))

    @dg.custom_vjp
    def scaled(x):
        return x * scale

    scaled.defvjp(lambda x: (x * scale, None), lambda _, g: (g * scale,))
    return np.sum(scaled(x) ** 2)


def keeps(x):
    seen.append(dg.value(np.sum(x)))
    return np.sum(x**2)


def raising_for_data(x):
    data = dg.value(x)
    try:
        with np.errstate(invalid="raise"):
            weights = (data - 0.5) ** 0.5
    except FloatingPointError:
        weights = np.ones(5)
    return np.sum(weights * x)


HOSTILE = {
    "NumPy raises for data": raising_for_data,
    "a rule of any shape": lambda x: np.sum(of_any_shape(x)),
    "a rule that raises": lambda x: np.sum(raising(x)),
    "a rule of a closure": rule_of_a_closure,
    "the number as a float": lambda x: float(dg.value(x)[0]) * np.sum(x),
    "the number changed in place": lambda x: np.sum(x) * np.sum(zeroed(dg.value(x))),
    "a float in a gradient": lambda x: autograd.grad(lambda t: np.sum(t) * float(dg.value(t[0])))(
        x
    ).sum(),
    "a mutated list in a gradient": lambda x: np.sum(autograd.grad(collected)(x) * x),
    "dg.grad": lambda x: np.sum(dg.grad(lambda t: dg.delayed(energy)(t))(dg.value(x))) * x[0],
}


def zeroed(array):
    array[0] = 0.0
    return array


def collected(t):
    total = []
    for each in t:
        total.append(each**2)
    return sum(total)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models_are_right(name):
    require_same_bits(HOSTILE[name], [*[np.abs(x) + 0.6 for x in points(5)], *points(12)])


def test_the_condition_of_a_root_is_not_traced_again(monkeypatch):
    def fun(x):
        return [np.sum(root(x, MATRIX) ** 2)]

    program = program_of(fun, [X], [0])
    outputs, tape = trace(fun, [X])
    expected = [*outputs, *tape.pull(program.examples)]
    monkeypatch.setattr(implicit, "trace", None)
    outputs, residuals = program.forward(X)
    assert are_same([*outputs, *program.pull_examples(residuals)], expected)


@dg.custom_vjp
def weighted_back(x):
    return 1.0 * x


weighted_back.defvjp(lambda x: (1.0 * x, None), lambda _, g: (weight["w"] * g,))
weighted_back.defjvp(lambda x, t: (1.0 * x[0], weight["w"] * t[0]))
weighted_root = dg.implicit(lambda t: 0.0 * t, lambda x, t: x - weight["w"] * t)
REFERRING = {
    "a rule": lambda x: np.sum(weighted(x)),
    "a rule within grad": lambda x: autograd.grad(lambda t: np.sum(weighted_back(t)))(x) @ x,
    "the condition of a root": lambda x: np.sum(weighted_root(x)),
}


@pytest.mark.parametrize("name", REFERRING)
def test_what_a_rule_refers_to_may_change(name):
    model = dg.delayed(REFERRING[name], compile=True)
    for factor in (1.0, 3.0):
        weight["w"] = factor
        for x in points():
            assert_array_equal(dg.grad(model)(x), np.full(5, factor))
            _, pushed = dg.jvp(model, (x,), (np.ones(5),))
            assert pushed == 5.0 * factor


def test_a_rule_that_is_a_model_is_not_kept_alive():
    def make():
        rule = dg.custom_vjp(lambda x: x**2)
        rule.defvjp(lambda x: (x**2, x), lambda x, g: (2.0 * x * g,))
        rule.defjvp(lambda x, t: (x[0] ** 2, 2.0 * x[0] * t[0]))
        model = dg.delayed(rule, compile=True)
        for x in points():
            assert_array_equal(dg.vjp(model, x)[1](x)[0], 2.0 * x * x)
            assert_array_equal(dg.jvp(model, (x,), (x,))[1], 2.0 * x * x)
        return weakref.ref(rule)

    gone = make()
    gc.collect()
    assert gone() is None


def test_a_program_keeps_nothing_of_the_recorded_call():
    class Residual:
        pass

    def forward(x):
        return x**2, (x, Residual())

    rule = dg.custom_vjp(lambda x: x**2)
    rule.defvjp(forward, lambda r, g: (2.0 * r[0] * g,))
    model = lambda x: np.sum(rule(x) * x)  # noqa: E731
    gradient = dg.grad(dg.delayed(model, compile=True))
    for x in points():
        gradient(x)
    (entry,) = entries_of(model)
    assert entry.ways
    gc.collect()
    assert Residual not in map(type, gc.get_objects())


def test_a_model_that_keeps_the_number_is_left_to_the_tape():
    seen.clear()
    gradient = dg.grad(dg.delayed(keeps, compile=True))
    for x in points():
        gradient(x)
    (entry,) = entries_of(keeps)
    assert not entry.ways
    assert [seen[0], *list(seen)[-4:]] == [np.sum(x) for x in [points()[0], *points()[-4:]]]


def test_a_constant_that_is_changed_in_place_is_found(monkeypatch):
    monkeypatch.setattr(boxes, "changed_by", lambda frame: None)
    model = lambda x: autograd.grad(of_three_paths)(x) @ x  # noqa: E731
    gradient = dg.grad(dg.delayed(model, compile=True))
    for x in points():
        gradient(x)
    (entry,) = entries_of(model)
    assert entry.refusal


# ------------------------------------------------------------------------------ repeated calls


def same_sums(x):
    """The first of these sums is changed in place when the last cotangent arrives."""
    twice = x * x + x * x
    _, tape = trace(lambda y: [y * x, y * x, y * x], [x])
    (found,) = tape.pull([x, x, x])
    return [found * 1.0, np.sum(twice)]


def same_views(x):
    return [np.sin(x)[1:], np.sin(x)[:-1]]


def outputs_of_program(fun):
    return program_of(fun, [X], []).forward(X)[0]


def test_repeated_calls_are_made_once():
    def fun(x):
        return [np.exp(x) * np.sum(np.exp(x)), np.exp(x) + 1.0]

    source = program_of(fun, [X], []).source.text
    assert source.count("exp_") == 1


def test_repeated_calls_share_no_array_that_is_changed(monkeypatch):
    assert are_same(outputs_of_program(same_sums), same_sums(X))
    monkeypatch.setattr(rewrites, "not_shared", lambda program: set())
    assert not are_same(outputs_of_program(same_sums), same_sums(X))


def test_repeated_calls_share_no_memory_that_is_handed_out():
    assert not np.shares_memory(*outputs_of_program(same_views))
