"""Programs from textbooks in plain NumPy and SciPy, whose derivatives are differences.

Nothing in them knows that they are differentiated, but for the functions of ``daskgrad.scipy``,
which are called as SciPy's are.
"""

import numpy as np
import pytest
import scipy.sparse
import scipy.special as sc
from lengths import in_short
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.scipy import integrate, interpolate, linalg, optimize, signal, sparse, special, stats

pytestmark = pytest.mark.usefixtures("synchronous")


# ------------------------------------- models of an item of data and of parameters, and the data


def gaussian_process(data, p):
    """The log evidence of a regression with a squared exponential kernel."""
    x, y = data
    squares = (x[:, np.newaxis] - x) ** 2 / np.exp(p[1]) ** 2
    cov = np.exp(p[0]) * np.exp(-0.5 * squares) + np.exp(p[2]) * np.eye(len(x))
    factor = linalg.cho_factor(cov, lower=True)
    logs = 2.0 * np.sum(np.log(np.diagonal(factor[0])))
    return -0.5 * (y @ linalg.cho_solve(factor, y) + logs + len(x) * np.log(2.0 * np.pi))


def hidden_markov(observed, p):
    """The log likelihood of counts from a chain of two states, by the forward algorithm."""
    stay, leave = sc.log_expit(p[:2]), sc.log_expit(-p[:2])
    transition = np.stack([np.stack([stay[0], leave[0]]), np.stack([leave[1], stay[1]])])
    rates = np.exp(p[2:])
    logs = np.log(0.5) + stats.poisson.logpmf(observed[0], rates)
    for count in observed[1:]:
        logs = special.logsumexp(logs[:, np.newaxis] + transition, axis=0)
        logs = logs + stats.poisson.logpmf(count, rates)
    return special.logsumexp(logs)


def reaction(data, p):
    """The misfit of A → B ⇌ C, solved by the exponential of the matrix of rates."""
    time, measured = data
    k = np.exp(p)
    rows = [[-k[0], 0.0, 0.0], [k[0], -k[1], k[2]], [0.0, k[1], -k[2]]]
    rates = np.stack([np.stack([entry + 0.0 * k[0] for entry in row]) for row in rows])
    return np.sum((linalg.expm(rates * time)[:, 0] - measured) ** 2)


def survival(patient, p):
    """The log likelihood of a Weibull regression with a censored time."""
    time, is_dead, covariates = patient
    shape, scale = np.exp(p[0]), np.exp(p[1] + covariates @ p[2:])
    if is_dead:
        return stats.weibull_min.logpdf(time, shape, scale=scale)
    return stats.weibull_min.logsf(time, shape, scale=scale)


def probit(row, p):
    """The log likelihood of a binary answer, right in the tails."""
    x, answer = row
    return sc.log_ndtr((2.0 * answer - 1.0) * (x @ p))


def tomography(ray, p):
    """The misfit of a line through an image of 4 by 4, sampled between its points."""
    (begin, end), measured = ray
    at = begin + np.linspace(0.0, 1.0, 7)[:, np.newaxis] * (end - begin)
    low = np.clip(np.floor(at).astype(int), 0, 2)
    (rows, columns), (down, right), image = low.T, (at - low).T, np.reshape(p, (4, 4))
    upper = image[rows, columns] * (1.0 - right) + image[rows, columns + 1] * right
    below = image[rows + 1, columns] * (1.0 - right) + image[rows + 1, columns + 1] * right
    along = upper * (1.0 - down) + below * down
    return (np.mean(along) * np.linalg.norm(end - begin) - measured) ** 2


def spline_regression(data, p):
    """The misfit of a natural cubic spline with these values at the knots, and its bending."""
    x, y = data
    knots = np.array([0.0, 0.7, 1.1, 2.0, 2.6, 3.0])
    spline = interpolate.CubicSpline(knots, p, bc_type="natural")
    return np.sum((spline(x) - y) ** 2) + 0.1 * np.sum(spline(knots, 2) ** 2)


def smoothed_image(projection, p):
    """The misfit of sums over parts of an image of 5 by 5, whose edges cost less than a square."""
    rows, measured = projection
    steps = scipy.sparse.diags_array([-np.ones(4), np.ones(4)], offsets=[0, 1], shape=(4, 5))
    edges = scipy.sparse.kron(steps, scipy.sparse.eye_array(5)).tocsr() @ p
    beams = scipy.sparse.csr_array((np.ones(len(rows)), (np.arange(len(rows)) // 5, rows)))
    return np.sum((beams @ p[: beams.shape[1]] - measured) ** 2) + np.sum(np.sqrt(0.01 + edges**2))


def arma(series, p):
    """The log likelihood of a series with moving averages, conditional on zeros before it."""
    regression = np.concatenate([np.ones(1), -0.5 * np.tanh(p[:2])])
    average = np.concatenate([np.ones(1), 0.5 * np.tanh(p[2:3])])
    residuals = signal.lfilter(regression, average, series - p[3])
    return np.sum(stats.norm.logpdf(residuals, scale=np.exp(p[4])))


def heat_conduction(experiment, p):
    """The misfit of temperatures along a rod of unlike elements, which is cold at its ends."""
    heat, measured = experiment
    conductivity, nodes = np.exp(p), np.arange(p.size - 1)
    diagonal, beside = conductivity[:-1] + conductivity[1:], -conductivity[1:-1]
    rows = np.concatenate([nodes, nodes[:-1], nodes[1:]])
    columns = np.concatenate([nodes, nodes[1:], nodes[:-1]])
    stiffness = sparse.csc_array((np.concatenate([diagonal, beside, beside]), (rows, columns)))
    return np.sum((sparse.linalg.spsolve(stiffness, heat) - measured) ** 2)


def predator_prey(series, p):
    """The misfit of the logarithms of two populations, by the equations of Lotka and Volterra."""
    times, start, measured = series
    a, b, c, d = np.exp(p)

    def rates(t, y):
        prey, predators = y
        return [a * prey - b * prey * predators, d * prey * predators - c * predators]

    options = {"method": "DOP853", "t_eval": times, "rtol": 1e-11, "atol": 1e-12}
    solution = integrate.solve_ivp(rates, (0.0, times[-1]), start, **options)
    return np.sum((np.log(solution.y) - measured) ** 2)


def random_effect(group, p):
    """The log likelihood of a group's binary answers, whose common intercept is integrated out."""
    x, answers = group
    signs = 2.0 * answers - 1.0

    def density(intercept, spread):
        logs = np.sum(sc.log_expit(signs * (x @ p[1:] + intercept)))
        return np.exp(logs + stats.norm.logpdf(intercept, scale=spread))

    likelihood, _ = integrate.quad(density, -np.inf, np.inf, args=(np.exp(p[0]),), epsabs=1e-12)
    return np.log(likelihood)


def acid(titration, p):
    """The misfit of the pH of a weak acid, from the balance of charges."""
    base, measured = titration
    total, dissociation = np.exp(p[0]), 10.0 ** -p[1]

    def charge(ph):
        protons = 10.0**-ph
        return base + protons - total * dissociation / (dissociation + protons) - 1e-14 / protons

    return (optimize.brentq(charge, 0.0, 14.0, xtol=1e-14) - measured) ** 2


def market(year, p):
    """The misfit of the prices of two goods at which supply meets demand."""
    income, measured = year

    def excess(logs, elasticities):
        of_itself, cross = elasticities
        demand = income * np.exp(-of_itself * logs + cross * logs[::-1])
        return demand - np.exp(p[2:] + 0.5 * logs)

    logs = optimize.root(excess, np.zeros(2), args=(np.exp(p[:2]),), tol=1e-13).x
    return np.sum((logs - measured) ** 2)


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def pairs(first, second):
    return list(zip(first, second, strict=True))


PROGRAMS = {
    gaussian_process: lambda: (pairs(drawn(1, 3, 5), drawn(2, 3, 5)), drawn(3, 3)),
    hidden_markov: lambda: (
        [np.array([2, 0, 3, 1, 2]), np.array([1, 1, 4, 2, 0])],
        np.array([0.5, 1.0, 0.2, 1.3]),
    ),
    reaction: lambda: ([(t, np.array([0.4, 0.4, 0.2])) for t in (0.3, 1.0, 2.0)], drawn(4, 3)),
    survival: lambda: (
        [(0.7, True, np.ones(2)), (1.9, False, np.zeros(2)), (1.2, True, np.array([1.0, -1.0]))],
        drawn(5, 4),
    ),
    probit: lambda: (pairs(drawn(6, 3, 3), (0, 1, 1)), 9.0 * np.ones(3)),
    tomography: lambda: (
        [(np.array([[0.1, 0.2], [2.7, 2.9]]), 1.0), (np.array([[2.9, 0.3], [0.2, 1.1]]), 0.5)],
        drawn(7, 16),
    ),
    spline_regression: lambda: (
        pairs([np.linspace(0.1, 2.9, 7), np.array([0.7, 2.0])], [drawn(8, 7), np.ones(2)]),
        drawn(9, 6),
    ),
    smoothed_image: lambda: (
        [(np.arange(25)[::-1], drawn(10, 5)), (np.arange(25) * 7 % 25, drawn(11, 5))],
        drawn(12, 25),
    ),
    arma: lambda: (list(drawn(13, 3, 12)), drawn(14, 5)),
    heat_conduction: lambda: (pairs(drawn(15, 3, 6), drawn(16, 3, 6)), 0.3 * drawn(17, 7)),
    predator_prey: lambda: (
        [
            (np.array([0.0, 0.4, 1.1]), np.array([1.0, 0.5]), 0.1 * np.ones((2, 3))),
            (np.array([0.5, 0.9]), np.array([2.0, 0.7]), np.zeros((2, 2))),
        ],
        np.array([0.1, -0.2, 0.3, -0.4]),
    ),
    random_effect: lambda: (
        pairs(drawn(18, 2, 4, 2), (np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0]))),
        np.array([-0.3, 0.5, -0.7]),
    ),
    acid: lambda: (
        [(0.0, 2.9), (0.02, 4.3), (0.05, 4.7), (0.12, 12.0)],
        np.array([np.log(0.1), 4.76]),
    ),
    market: lambda: (
        [(1.0, np.array([0.1, -0.2])), (1.4, np.array([0.3, 0.0]))],
        np.array([-0.1, -1.2, 0.2, -0.3]),
    ),
}


def slopes(fun, x):
    def central(step):
        return np.array([(fun(x + e) - fun(x - e)) / (2.0 * step) for e in step * np.eye(x.size)])

    return (4.0 * central(5e-5) - central(1e-4)) / 3.0


@in_short(
    "model", PROGRAMS, hidden_markov, reaction, heat_conduction, market, ids=lambda m: m.__name__
)
def test_derivatives_are_differences(model):
    items, x = PROGRAMS[model]()

    def plain(p):
        return sum([model(item, p) for item in items])

    def summed(p):
        return dg.map_sum(model, items, p)

    value, gradient = dg.value_and_grad(summed)(x)
    assert_allclose(value, plain(x), rtol=1e-12)
    assert_allclose(gradient, slopes(plain, x), rtol=1e-7, atol=1e-8)
    tangent = np.cos(np.arange(x.size))
    _, (product,) = dg.hvp(summed, (x,), (tangent,))
    along = (dg.grad(summed)(x + 1e-5 * tangent) - dg.grad(summed)(x - 1e-5 * tangent)) / 2e-5
    assert_allclose(product, along, rtol=1e-5, atol=1e-6)
