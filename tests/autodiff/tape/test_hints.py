"""Hints: errors about traced values name the library or function and what to write."""

import types

import numpy as np
import pytest
from inputs import C, X, notes

import daskgrad as dg
from daskgrad.autodiff.tape import boxes

pytestmark = pytest.mark.usefixtures("synchronous")


def library(name, source):
    """Functions whose frames are those of a library that need not be installed."""
    module = types.ModuleType(name)
    exec(source, module.__dict__)
    return module


XARRAY = library(
    "xarray.core.dataarray",
    """
class DataArray:
    def dot(self, other):
        if hasattr(other, "unit") or not hasattr(other, "tocsc"):
            raise TypeError("dot only operates on DataArrays.")
""",
)


def series(data=C):
    return pytest.importorskip("pandas").Series(data)


def scipy_of(name):
    return pytest.importorskip(f"scipy.{name}")


def assigned(x):
    x[0] = 1.0
    return np.sum(x)


def plain(u):
    return u**2


ADVISED = {  # a usage: the model, and what its message says
    "a Series times x": (lambda x: np.sum(series() * x), "pandas takes no", ".to_numpy()"),
    "x times a Series": (lambda x: np.sum(x * series()), "pandas takes no", ".to_numpy()"),
    "a Series times a number": (lambda x: np.sum(series() * x[0]), "pandas takes no"),
    "a Series of x": (lambda x: np.sum(series(x) ** 2), "pandas takes no", "ArrayBox"),
    "np.vectorize": (lambda x: np.sum(np.vectorize(plain, otypes=[float])(x)), "np.vectorize"),
    "np.fromiter": (lambda x: np.sum(np.fromiter((u for u in x), float)), "np.fromiter"),
    "masked": (lambda x: np.sum(np.ma.masked_invalid(x)), "masked arrays", "np.where(mask"),
    "np.array": (lambda x: np.sum(np.log10(np.array([x[0], x[1]]))), "np.stack([...])"),
    "a format": (lambda x: float(f"{x[0]:.3f}") * x[1], "dg.value(x)"),
    "expm": (
        lambda x: np.sum(scipy_of("linalg").expm(x[0] * np.eye(2))),
        "write daskgrad.scipy.linalg.expm",
    ),
    "logsumexp": (
        lambda x: scipy_of("special").logsumexp(x),
        "write daskgrad.scipy.special.logsumexp",
    ),
    "a class of SciPy's": (
        lambda x: scipy_of("interpolate").CubicSpline([0, 1, 2], x)(0.5),
        "write daskgrad.scipy.interpolate.CubicSpline",
    ),
    "map_coordinates": (
        lambda x: np.sum(scipy_of("ndimage").map_coordinates(np.eye(3), np.stack([x, x]))),
        "scipy.ndimage.map_coordinates takes no traced values",
        "dg.finite_difference",
    ),
    "assignment": (assigned, "np.where"),
}
IN_TRACES = {  # which plain values do not get to
    "xarray": (lambda x: XARRAY.DataArray().dot(x), "xarray takes no traced values", ".values"),
}


DERIVATIVES = {
    "grad": lambda model: dg.grad(model)(X),
    "jvp": lambda model: dg.jvp(model, (X,), (X,)),
    "hvp": lambda model: dg.hvp(model, (X,), (X,)),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("usage", ADVISED | IN_TRACES)
def test_an_error_says_what_to_write(usage, derivative):
    model, *words = (ADVISED | IN_TRACES)[usage]
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        DERIVATIVES[derivative](dg.delayed(model))
    told = f"{caught.value}\n{notes(caught.value)}"
    assert "hile it is differentiated" in told
    assert [word for word in words if word not in told] == []


UNEXPLAINED = {"assignment", "x times a Series"}  # it changes X; autograd's error names the class


@pytest.mark.parametrize("usage", [usage for usage in ADVISED if usage not in UNEXPLAINED])
def test_explain_says_what_to_write(usage):
    model, *words = ADVISED[usage]
    told = dg.explain(model, X)
    assert "not compiled: the model" in told
    assert f"in {__file__}:" in told
    assert any([word in told for word in words])


def test_an_error_that_is_not_about_traced_values_gets_no_hint():
    with pytest.raises(KeyError) as caught:
        dg.grad(dg.delayed(lambda x: np.sum(x) * series()["no such label"]))(X)
    assert "traced" not in notes(caught.value)


def test_jvp_of_what_is_no_array_is_an_error():
    class Kept(XARRAY.DataArray):
        def __init__(self, data):
            self.data, self.dtype, self.shape = data, data.dtype, data.shape

        def to_numpy(self):
            return np.asarray(self.data)

    class Holder:
        def __init__(self, data):
            self.data = data

    for kind in (Kept, Holder):
        model = dg.delayed(lambda x, kind=kind: kind(np.sum(x)), name="model")
        for call in (dg.grad(model), lambda x, model=model: dg.jvp(model, (x,), (x,))):
            with pytest.raises(TypeError, match=f"'model' returned {kind.__name__}; expected num"):
                call(X)


def test_each_library_is_one_that_places_in_models_leave_out():
    packages = {path for path in boxes.ADVICE if path in boxes.LIBRARIES}
    assert packages == {"pandas", "xarray"}
