"""Arrays of nodes: ``np.array`` of parameters between models; what libraries make of nodes."""

import logging
import re

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats
from inputs import notes
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.graph import nodes

pytestmark = pytest.mark.usefixtures("synchronous")

X, M = np.array([0.4, 0.7, 1.3]), np.arange(9.0).reshape(3, 3) + np.eye(3)


def squares(x):
    return np.sum(x**2)


RIGHT = {
    "numbers": lambda x: 2.0 * np.array([np.exp(x[0]), x[1]]),
    "a tuple": lambda x: np.array((x[0], x[1])) - 2.0 * x[:2],
    "nested": lambda x: np.array([[x[0], 1.0], [0.0, x[1]]]) @ np.array([1.0, x[2]]),
    "vectors": lambda x: M[:2] * np.array([x, 2.0 * x]),
    "an array": lambda x: np.array(x) ** 2,
    "asarray": lambda x: np.asarray([x[0], x[1]]) * x[:2],
    "one number": lambda x: np.array(x[0]) * x[1],
    "a matrix before": lambda x: M @ np.array([x[0], x[1], x[2]]),
    "dot": lambda x: np.dot(np.array([x[0], x[1]]), np.ones(2)),
    "norm": lambda x: np.linalg.norm(np.array([x[0], x[1]])),
    "where": lambda x: np.where([True, False], np.array([x[0], x[1]]), 0.0),
    "an index": lambda x: np.array([x[0], x[1]])[1] * x[0],
    "r_": lambda x: np.r_[x[0], x[1], 1.0] ** 2,
    "c_": lambda x: np.c_[x, x] @ np.ones(2),
    "stack": lambda x: np.stack([x[0], x[1]]) ** 2,
    "vstack": lambda x: np.vstack([x, x]) ** 2,
    "concatenate a list": lambda x: np.concatenate([[x[0]], x]) ** 2,
}


@pytest.mark.parametrize("name", RIGHT)
def test_an_array_of_nodes_is_the_array_of_their_numbers(name):
    def objective(x):
        return np.sum(RIGHT[name](x))

    steps = 1e-6 * np.eye(3)
    slopes = [(objective(X + step) - objective(X - step)) / 2e-6 for step in steps]
    assert_allclose(dg.grad(objective)(X), slopes, rtol=1e-7, atol=1e-9)
    assert_allclose(dg.grad(dg.delayed(objective))(X), slopes, rtol=1e-7, atol=1e-9)


def test_an_array_of_nodes_is_an_argument_of_models_and_of_sums_and_an_output():
    model = dg.delayed(squares)
    assert_allclose(dg.grad(lambda x: model(np.array([x[0], x[1]])))(X), [0.8, 1.4, 0.0])

    def objective(x):
        return dg.map_sum(lambda item, p: item * squares(p), [1.0, 2.0], np.array([x[0], x[2]]))

    assert_allclose(dg.grad(objective)(X), [2.4, 0.0, 7.8])
    assert_allclose(dg.jacobian(lambda x: np.array([x[0], x[1]]))(X), np.eye(3)[:2])


def solver_of(name, *args, **kwargs):
    def call():
        return getattr(scipy.optimize, name)(*args, **kwargs)

    return call


STRESS = dg.delayed(lambda x: np.stack([x[0] + x[1], x[0] * x[1]]))
INEQUALITY = {"type": "ineq", "fun": STRESS, "jac": dg.jacobian(STRESS)}


def gradient_of(fun):
    return lambda: dg.grad(fun)(X)


def with_array(of):
    """The gradient of a function of ``dask.array``."""

    def call():
        return dg.grad(lambda x: of(pytest.importorskip("dask.array"), x))(X)

    return call


OF_DASK = r"write NumPy's functions of dg.array\(x\).*dg.map_sum"
REFUSED = {
    "exp": (gradient_of(lambda x: np.sum(np.exp(np.array([x[0]])))), "between models.*np.stack"),
    "dtype": (gradient_of(lambda x: np.sum(np.array([x[0]], float))), "between models.*np.stack"),
    "solve": (
        gradient_of(lambda x: np.sum(np.linalg.solve(M, np.array([x[0], x[1], x[2]])))),
        "between models.*np.stack",
    ),
    "not computed": (gradient_of(lambda x: np.array([dg.delayed(squares)(x)])), "np.asarray needs"),
    "too many": (lambda: dg.grad(lambda x: np.sum(np.array(x)))(np.ones(1001)), "np.stack"),
    "scipy.linalg": (
        gradient_of(lambda x: np.sum(scipy.linalg.inv(M * x[0]))),
        "scipy.linalg.inv takes no traced values; write np.linalg.inv",
    ),
    "scipy.stats": (
        gradient_of(lambda x: np.sum(scipy.stats.norm.logpdf(x))),
        "write daskgrad.scipy.stats.norm.logpdf",
    ),
    "a constraint": (
        solver_of("minimize", squares, np.ones(2), method="SLSQP", constraints=INEQUALITY),
        "dg.adapters.flat or flat_residuals",
    ),
    "fsolve": (solver_of("fsolve", STRESS, np.ones(2)), "dg.adapters.flat or flat_residuals"),
    "least_squares": (solver_of("least_squares", STRESS, np.ones(2)), "flat_residuals"),
    "da.dot": (with_array(lambda da, x: da.ones((4, 3)).dot(x).sum()), OF_DASK),
    "da.dot, computed": (with_array(lambda da, x: da.ones((4, 3)).dot(x).sum().compute()), OF_DASK),
    "da.sum": (with_array(lambda da, x: da.sum(x)), OF_DASK),
    "da.stack": (with_array(lambda da, x: da.stack([x, x]).sum()), OF_DASK),
    "da.dot of a model's value": (
        with_array(lambda da, x: da.ones((4, 3)).dot(dg.delayed(np.exp)(x)).sum()),
        OF_DASK,
    ),
    "dg.array and a value": (
        gradient_of(lambda x: np.sum(dg.array(M) @ dg.delayed(np.exp)(x))),
        r"write dg.array\(x\) of a variable",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:Passing an object to dask.array:UserWarning")
def test_what_libraries_make_of_nodes_is_an_error_that_says_what_to_write(name):
    call, told = REFUSED[name]
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        call()
    assert re.search(told, f"{caught.value} {notes(caught.value)}")


def test_a_matrix_in_chunks_times_a_variable():
    gradient = dg.grad(lambda x: np.sum(dg.array(M, chunks=2) @ x))(X)
    assert_allclose(gradient, np.sum(M, axis=0))


def test_an_index_that_is_not_there_is_an_error_at_its_line():
    def total(x):
        terms = []
        while True:
            try:
                terms.append(dg.delayed(squares)(x[len(terms)]))
            except IndexError:
                return dg.sum(terms)

    assert_allclose(dg.grad(total)(X), 2.0 * X)
    for index in (7, np.array([0, 9]), (0, 5)):
        with pytest.raises(IndexError, match=r"<Variable x: float64\[3\]> has no item"):
            dg.variable(X, "x")[index]


@pytest.mark.parametrize("where", ["in a model", "compiled", "between models"])
def test_logs_have_numbers(where, caplog, capsys):
    log = logging.getLogger("inversion")
    caplog.set_level(logging.INFO, "inversion")

    def misfit(x):
        value = np.sum(x**2)
        log.info("misfit %.2f, %d", value, x[2])
        return value

    model = misfit if where == "between models" else dg.delayed(misfit, compile=where == "compiled")
    gradients = [dg.grad(model)(X) for _ in range(3)]
    assert_allclose(gradients, [2.0 * X] * 3)
    assert set(caplog.messages) == {"misfit 2.34, 1"}
    assert "Logging error" not in capsys.readouterr().err


def test_an_array_of_many_nodes_evaluates_each_once(monkeypatch):
    evaluated, plain = [], nodes.value_of_node
    monkeypatch.setattr(
        nodes, "value_of_node", lambda node, *args: evaluated.append(node) or plain(node, *args)
    )

    def total(x):
        levels = [x[0]]
        for _ in range(30):
            levels.append(levels[-1] * x[1])
        return np.sum(np.array(levels) ** 2)

    dg.grad(total)(np.array([1.0, 0.9]))
    assert evaluated
    assert len(evaluated) == len(set(map(id, evaluated)))
