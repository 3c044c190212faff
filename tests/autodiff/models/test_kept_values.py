"""Models that keep a traced value for their next call get an error that says so."""

import autograd.numpy as np
import dask
import numpy
import pytest

import daskgrad as dg

X, V = numpy.array([0.5, 1.0, 1.5]), numpy.array([1.0, -2.0, 0.5])


class Simulation:
    """Keeps a value until it is called with another x."""

    kept = at = None

    def __call__(self, x):
        if self.kept is None or not numpy.array_equal(dg.value(x), self.at):
            self.at, self.kept = numpy.array(dg.value(x)), np.sin(x)
        return np.sum(self.kept) + np.sum(x**2)


def with_a_table():
    table = {}

    def model(x):
        if "sin" not in table:
            table["sin"] = np.sin(x)
        return np.sum(table["sin"]) + np.sum(x**2)

    return model


def returning():
    table = []

    def model(x):
        table.append(np.sin(x))
        return table[0]

    return model


def twice(derivative):
    return lambda model: [derivative(model) for _ in range(2)]


CALLS = {
    "grad, again": twice(lambda model: dg.vjp(dg.delayed(model), X)[1](1.0)),
    "its value": lambda model: (dg.grad(dg.delayed(model))(X), model(X)),
    "recompute": lambda model: dg.grad(dg.delayed(model, keep="recompute"))(X),
    "jvp, again": twice(lambda model: dg.jvp(dg.delayed(model), (X,), (V,))),
    "jvp": lambda model: (dg.grad(dg.delayed(model))(X), dg.jvp(dg.delayed(model), (X,), (V,))),
    "hvp, again": twice(lambda model: dg.hvp(dg.delayed(model), (X,), (V,))),
    "a sum": lambda model: dg.grad(lambda x: dg.map_sum(lambda _, x: model(x), [1.0, 2.0], x))(X),
}


@pytest.mark.parametrize("make", [Simulation, with_a_table])
@pytest.mark.parametrize("name", CALLS)
def test_a_kept_value_is_an_error_that_names_operation_and_line(name, make):
    with (
        dask.config.set(scheduler="sync"),
        pytest.raises(TypeError, match=r"np.sum, in .*test_kept_values.py:\d+, uses .* kept from"),
    ):
        CALLS[name](make())


def test_a_kept_value_that_is_returned_is_an_error():
    model = dg.delayed(returning())
    dg.vjp(model, X)
    for derivative in (lambda: dg.vjp(model, X), lambda: dg.jvp(model, (X,), (V,))):
        with pytest.raises(
            TypeError, match=r"what the model returns, .* kept from an earlier call"
        ):
            derivative()


def test_a_model_that_fails_may_be_called_again():
    def model(x):
        np.sum(x)
        raise ValueError("first")

    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            dg.grad(dg.delayed(model))(X)
