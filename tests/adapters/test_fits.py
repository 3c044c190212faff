"""Fits: minima with standard errors, against SciPy's and exact ones."""

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

T = np.linspace(0.0, 10.0, 60)
Y = 3.0 * np.exp(-0.4 * T) + 0.5 + np.random.default_rng(0).normal(size=60) * 0.1
X = np.random.default_rng(1).normal(size=(40, 2))
Z = X @ [1.0, -2.0] + np.random.default_rng(2).normal(size=40)
DECAY = {"a": 1.0, "k": 0.1, "c": 0.0}


def decay(p):
    return p["a"] * np.exp(-p["k"] * T) + p["c"] - Y


def linear(p):
    return 0.5 * np.sum((X @ p["w"] - Z) ** 2)  # errors of variance one


def least_squares():
    return dg.adapters.flat_residuals(dg.delayed(decay), DECAY)[0]


def minimum(scale=None):
    return dg.adapters.flat(dg.delayed(linear), {"w": np.zeros(2)}, scale)[0]


def exact_errors():
    return np.sqrt(np.diag(np.linalg.inv(X.T @ X)))


def test_least_squares_have_the_errors_of_curve_fit():
    fit = least_squares().fit()
    curve = lambda t, a, c, k: a * np.exp(-k * t) + c  # noqa: E731
    estimates, covariance = scipy.optimize.curve_fit(curve, T, Y, [1.0, 0.0, 0.1])
    assert fit.names == ["a", "c", "k"]
    assert_allclose(fit.estimates, estimates, rtol=1e-5)
    assert_allclose(fit.errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
    assert_allclose(fit.parameters["k"], estimates[2], rtol=1e-5)
    assert_allclose(fit.value, 0.5 * np.sum(decay(fit.parameters) ** 2))
    assert fit.success
    assert fit.nfev > 1
    assert fit.warnings == []
    assert fit.distance < 1e-2
    correlations = covariance / np.outer(*[np.sqrt(np.diag(covariance))] * 2)
    assert_allclose(fit.correlations, correlations, atol=1e-4)


@pytest.mark.parametrize("method", [None, "trust-exact", "trust-ncg", "L-BFGS-B", "trust-constr"])
@pytest.mark.parametrize("scale", [None, {"w": np.array([10.0, 0.1])}])
def test_a_minimum_has_the_errors_of_its_hessian(method, scale):
    fit = minimum(scale).fit(method=method)
    assert_allclose(fit.estimates, np.linalg.lstsq(X, Z)[0], atol=1e-3)
    assert_allclose(fit.errors, exact_errors(), rtol=1e-6)
    assert fit.method == method or method is None


def test_it_begins_where_it_is_told_to():
    flat, start, _ = dg.adapters.flat(dg.delayed(linear), {"w": np.zeros(2)})
    best = flat.fit().x
    for x0 in (best, {"w": best}):
        assert flat.fit(x0).nit == 0
    assert flat.fit().nit > 0
    assert_array_equal(start, 0.0)
    with pytest.raises(ValueError, match="shapes"):
        flat.fit({"w": np.zeros(3)})


def test_an_entry_at_a_bound_has_no_error():
    flat = minimum()
    bounds = flat.bounds({"w": np.array([-np.inf, -1.0])})
    fit = flat.fit(bounds=bounds)
    with pytest.warns(UserWarning, match=r"at a bound, and without a standard error: w\[1\]"):
        errors = fit.errors
    assert_array_equal(fit.at_bound, [False, True])
    assert np.isnan(errors[1])
    assert_allclose(errors[0], 1.0 / np.linalg.norm(X[:, 0]), rtol=1e-6)  # of it alone
    assert "at a bound" in repr(fit)
    pairs = flat.fit(bounds=[(None, None), (-3.0, None)])
    assert_allclose(pairs.errors, exact_errors(), rtol=1e-6)


def test_that_it_did_not_converge_is_told():
    with pytest.warns(UserWarning, match=r"'decay': SciPy's trf did not converge"):
        fit = least_squares().fit(max_nfev=2)
    with pytest.warns(UserWarning, match="standard errors away, by Newton's step"):
        assert np.all(np.isfinite(fit.errors))
    assert len(fit.warnings) == 2
    assert "not converged" in repr(fit)


def test_a_flat_direction_is_named():
    flat = dg.adapters.flat(
        dg.delayed(lambda p: (p["a"] + p["b"] - 1.0) ** 2), {"a": 1.0, "b": 0.0}
    )
    with pytest.warns(UserWarning, match=r"no standard errors: the Hessian .* a, .* b"):
        assert np.all(np.isnan(flat[0].fit().errors))


def test_effects_that_are_estimated_jointly_are_told_of():
    groups = np.random.default_rng(3).normal(size=(8, 2))

    def joint(p):
        scale = np.exp(p["s"])
        apart = np.sum((p["u"] / scale) ** 2) / 2 + 8 * p["s"]
        return apart + np.sum((groups - p["u"][:, None]) ** 2) / 2 + np.exp(-p["s"]) / 2

    flat, *_ = dg.adapters.flat(dg.delayed(joint), {"s": 0.0, "u": np.zeros(8)})
    with pytest.warns(UserWarning, match="estimated jointly"):
        assert flat.fit().warnings


CONSTRAINTS = {
    "a dict": lambda g: {"type": "ineq", "fun": g, "jac": g.jacobian},
    "NonlinearConstraint": lambda g: scipy.optimize.NonlinearConstraint(g, 0.0, np.inf, g.jacobian),
}


@pytest.mark.parametrize("scale", [None, {"w": np.array([10.0, 0.1])}])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constraints_are_scipys(kind, scale):
    flat = minimum(scale)
    loose = flat.residuals(lambda p: p["w"][0] + 5.0)
    assert_allclose(
        flat.fit(constraints=CONSTRAINTS[kind](loose)).errors, exact_errors(), rtol=1e-6
    )
    tight = flat.residuals(dg.delayed(lambda p: p["w"][1] + 1.0))
    fit = flat.fit(constraints=CONSTRAINTS[kind](tight))
    assert_allclose(fit.estimates[1], -1.0, atol=1e-6)
    with pytest.warns(UserWarning, match="a constraint is active"):
        assert np.all(np.isnan(fit.errors))


EQUALITIES = {
    "a dict": lambda g: {"type": "eq", "fun": g, "jac": g.jacobian},
    "NonlinearConstraint": lambda g: [
        scipy.optimize.NonlinearConstraint(g, 0.0, 0.0, g.jacobian),
        scipy.optimize.NonlinearConstraint(g, -1.0, 1.0, g.jacobian),
    ],
}


@pytest.mark.parametrize("kind", EQUALITIES)
def test_an_equality_leaves_no_standard_errors_though_the_minimum_fulfils_it(kind):
    flat = minimum()
    total = float(np.sum(flat.fit().estimates))
    met = flat.residuals(lambda p: p["w"][0] + p["w"][1] - total)
    fit = flat.fit(constraints=EQUALITIES[kind](met))
    with pytest.warns(UserWarning, match="not for constraints that are equalities"):
        assert np.all(np.isnan(fit.errors))
    with pytest.raises(ValueError, match="equalities"):
        fit.profile("w[0]")


def test_a_robust_loss_leaves_no_standard_errors():
    fit = least_squares().fit(loss="soft_l1", f_scale=0.1)
    with pytest.warns(UserWarning, match="they are for loss='linear'"):
        assert np.all(np.isnan(fit.errors))
    assert fit.gradient_norm < 1e-3  # of the loss
    assert np.all(np.isfinite(least_squares().fit(loss="linear").errors))


def test_constraints_are_known_however_the_method_is_spelled():
    flat = minimum()
    tight = flat.residuals(lambda p: p["w"][1] + 1.0)
    fit = flat.fit(method="slsqp", constraints=CONSTRAINTS["a dict"](tight))
    with pytest.warns(UserWarning, match="a constraint is active"):
        assert np.all(np.isnan(fit.errors))
    loose = flat.residuals(lambda p: p["w"][0] + 5.0)
    with pytest.raises(ValueError, match="a profile has no constraints"):
        flat.fit(constraints=CONSTRAINTS["a dict"](loose)).profile("w[0]")
    with pytest.warns(UserWarning, match="did not converge"):
        early = flat.fit(method="trust-constr", options={"maxiter": 1})
    with pytest.warns(UserWarning, match="standard errors away"):
        assert np.all(np.isfinite(early.errors))


def test_a_profile_of_a_parabola_is_a_straight_line():
    fit = minimum().fit()
    profile = fit.profile("w[1]")
    error = exact_errors()[1]
    assert_allclose(profile.roots, (profile.values - fit.estimates[1]) / error, atol=1e-3)
    half = scipy.stats.norm.ppf(0.975) * error
    assert_allclose(profile.interval, fit.estimates[1] + [-half, half], atol=1e-3)


def test_a_profile_of_least_squares_has_students_quantile():
    flat, *_ = dg.adapters.flat_residuals(dg.delayed(lambda p: X @ p["w"] - Z), {"w": np.zeros(2)})
    fit = flat.fit()
    profile = fit.profile("w[0]")
    half = scipy.stats.t.ppf(0.975, 38) * fit.errors[0]
    assert_allclose(profile.interval, fit.estimates[0] + [-half, half], rtol=1e-4)


def test_a_profile_ends_at_bounds_and_names_what_it_lacks():
    flat = minimum()
    fit = flat.fit(bounds=flat.bounds({"w": np.array([0.9, -9.0])}))
    assert fit.profile("w[0]").interval[0] == -np.inf
    with pytest.raises(KeyError, match=r"no parameter is called 'v'; there are w\[0\], w\[1\]"):
        fit.profile("v")
    fit = flat.fit(bounds=flat.bounds({"w": np.array([-9.0, -1.0])}))
    with pytest.warns(UserWarning, match="at a bound"):
        assert np.isnan(fit.errors[1])
    with pytest.raises(ValueError, match=r"w\[1\] has no standard error"):
        fit.profile("w[1]")


def test_a_lower_value_beside_a_fit_is_told_of():
    wavy = dg.delayed(lambda p: 0.005 * p["x"] ** 2 + 5.0 * np.sin(p["x"]) ** 2)
    fit = dg.adapters.flat(wavy, {"x": 3.0})[0].fit()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit._problem.least = lambda result: float(result.fun) + 1.0
        fit.profile("x")
    assert any("it is no minimum" in str(warning.message) for warning in told)


def test_it_shows_as_a_table():
    fit = least_squares().fit()
    head, columns, *rows = repr(fit).splitlines()
    assert head.startswith("half the sum of squares of 'decay': 0.22546")
    assert "trf: converged" in head
    assert columns.split() == ["parameter", "estimate", "standard", "error"]
    assert [row.split()[0] for row in rows] == ["a", "c", "k"]
    assert "<td>k</td>" in fit._repr_html_()
    frame = fit.to_frame()
    assert list(frame.index) == fit.names
    assert_array_equal(frame["standard_error"], fit.errors)


def test_samples_are_of_the_density_from_the_minimum_on(monkeypatch):
    calls = []
    monkeypatch.setattr(dg.adapters, "sample", lambda *args, **kwargs: calls.append((args, kwargs)))
    fit = minimum().fit()
    fit.sample(draws=7)
    ((log_density, start), settings) = calls[0]
    assert settings == {"draws": 7}
    assert_array_equal(start["w"], fit.x)
    value, _ = dg.value_and_grad(log_density)(start)
    assert value == -fit.value
    with pytest.raises(TypeError, match="the residuals of 'decay' name no density"):
        least_squares().fit().sample()


def test_other_attributes_are_scipys_or_missing():
    fit = minimum().fit()
    assert fit.message == fit.result.message
    with pytest.raises(AttributeError):
        _ = fit.nothing
