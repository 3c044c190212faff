"""Hints: errors about traced values name the library or function and what to write."""

import re
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


A = np.array([[3.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 5.0]])


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
SCIPYS = {  # of SciPy's public functions: what the message says
    "stats.norm.logpdf": lambda f, x: f(C, x[0]),
    "stats.poisson.logpmf": lambda f, x: f(3, x[0]),
    "stats.gamma.cdf": lambda f, x: f(C, x[0], scale=x[1]),
    "stats.multivariate_normal.logpdf": lambda f, x: f(C, x, A),
    "stats.dirichlet": lambda f, x: f(x).logpdf(C / 6.0),
    "linalg.cho_factor": lambda f, x: f(A * x[0])[0],
    "linalg.solve_triangular": lambda f, x: f(A, x),
    "signal.fftconvolve": lambda f, x: f(x, C),
    "special.logsumexp": lambda f, x: f(x),
    "integrate.quad": lambda f, x: f(lambda u: u * x[0], 0.0, 1.0)[0],
    "integrate.solve_ivp": lambda f, x: f(lambda t, y: -x[0] * y, (0.0, 1.0), [1.0]).y,
    "interpolate.CubicSpline": lambda f, x: f([0.0, 1.0, 2.0], C)(x),
    "interpolate.RegularGridInterpolator": lambda f, x: f(([0.0, 1.0, 2.0],), C)(x),
    "optimize.brentq": lambda f, x: f(lambda u: u - x[0], 0.0, 1.0),
    "optimize.minimize": lambda f, x: f(lambda u: np.sum((u - x) ** 2), C).x,
    "sparse.csr_array": lambda f, x: f(A * x[0]) @ C,
}
ELSEWHERE = {  # what is not in daskgrad.scipy: what the message says instead
    "linalg.cholesky": (lambda f, x: f(A * x[0]), r"np.linalg.cholesky\(a\), which is the lower"),
    "linalg.eigh": (lambda f, x: f(A * x[0])[0], "write np.linalg.eigh"),
    "fft.rfft": (lambda f, x: np.abs(f(x)), "write np.fft.rfft"),
    "interpolate.interp1d": (lambda f, x: f(C, x)(1.3), r"write np.interp\(t, x, y\)"),
    "optimize.bisect": (
        lambda f, x: f(lambda u, a: u - a, 0.0, 1.0, args=(x[0],)),
        "daskgrad.scipy.optimize has brentq, minimize, root, root_scalar",
    ),
    "integrate.odeint": (
        lambda f, x: f(lambda y, t: -y, x, C),
        "daskgrad.scipy.integrate has .*quad",
    ),
    "ndimage.gaussian_filter": (
        lambda f, x: f(x, 1.0),
        "is not in daskgrad.scipy; .*dg.custom_vjp",
    ),
    "sparse.linalg.splu": (
        lambda f, x: f(pytest.importorskip("scipy.sparse").csc_array(A)).solve(x),
        "write daskgrad.scipy.sparse.linalg's",
    ),
}
IN_TRACES = {  # which plain values do not get to
    "xarray": (lambda x: XARRAY.DataArray().dot(x), "xarray takes no traced values", ".values"),
}


DERIVATIVES = {
    "grad": lambda model: dg.grad(model)(X),
    "jvp": lambda model: dg.jvp(model, (X,), (X,)),
    "hvp": lambda model: dg.hvp(model, (X,), (X,)),
}


@pytest.mark.filterwarnings(
    "ignore:Operation with ArrayBox is deprecated"
)  # pandas 3.1, and then it fails
@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("usage", ADVISED | IN_TRACES)
def test_an_error_says_what_to_write(usage, derivative):
    model, *words = (ADVISED | IN_TRACES)[usage]
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        DERIVATIVES[derivative](dg.delayed(model))
    told = f"{caught.value}\n{notes(caught.value)}"
    assert "hile it is differentiated" in told
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize("path", SCIPYS | ELSEWHERE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_of_scipys_is_told_what_to_write_for_it(path):
    module, *names = path.split(".") if "linalg.splu" not in path else ("sparse.linalg", "splu")
    call, told = ELSEWHERE.get(path, (SCIPYS.get(path), f"write daskgrad.scipy.{path}"))
    function = scipy_of(module)
    for name in names:
        function = getattr(function, name)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (SciPy's own)
        dg.grad(dg.delayed(lambda x: np.sum(call(function, x))))(X)
    assert re.search(told, notes(caught.value))


def test_data_that_a_model_uses_itself_is_not_blamed_for_a_derivative():
    def model(item, x):
        flags = np.zeros(3)
        flags[item] = 1.0
        return np.sum((flags * x[: int(dg.value(x[0]) * 0.0) + 3]) ** 2)

    told = dg.explain(model, np.array([0, 2]), X)
    assert "not compiled: the model calls __index__ of data, or of a value of dg.value" in told
    assert "float()" not in told


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
