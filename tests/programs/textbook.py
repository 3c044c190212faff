"""Programs from textbooks, in plain NumPy and SciPy: models of an item of data and of parameters.

Each is ``(model, items, parameters)``; nothing in them knows that they are differentiated, but for
the functions of ``daskgrad.scipy``, which are called as SciPy's are.
"""

import numpy as np
import scipy.sparse
import scipy.special as sc

from daskgrad.scipy import integrate, interpolate, linalg, optimize, signal, sparse, special, stats

random = np.random.default_rng(11)


def kalman_filter(series, p):
    """The log likelihood of a random walk with drift that is observed with noise."""
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])
    state, cov = np.zeros(2), np.eye(2)
    noise, step, total = np.exp(p[0]), np.diag(np.exp(p[1:])), 0.0
    for observed in series:
        state, cov = transition @ state, transition @ cov @ transition.T + step
        variance = cov[0, 0] + noise
        total = total + stats.norm.logpdf(observed, loc=state[0], scale=np.sqrt(variance))
        gain = cov[:, 0] / variance
        state = state + gain * (observed - state[0])
        cov = cov - np.outer(gain, cov[0])
    return total


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
    stay = sc.log_expit(p[:2])
    leave = sc.log_expit(-p[:2])
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


def ising_mean_field(couplings, p):
    """The variational free energy of spins whose magnetizations are tanh(p)."""
    m = np.tanh(p)
    entropy = np.sum(sc.entr(0.5 * (1.0 + m)) + sc.entr(0.5 * (1.0 - m)))
    return -0.5 * m @ couplings @ m - entropy


def deconvolution(blurred, p):
    """The misfit of a signal that was blurred with a periodic kernel, and its roughness."""
    kernel = np.exp(-0.5 * np.minimum(np.arange(8), 8 - np.arange(8)) ** 2)
    found = np.real(np.fft.ifft(np.fft.fft(p) * np.fft.fft(kernel / np.sum(kernel))))
    return np.sum((found - blurred) ** 2) + 0.1 * np.sum(np.diff(p, n=2) ** 2)


def survival(patient, p):
    """The log likelihood of a Weibull regression with a censored time."""
    time, is_dead, covariates = patient
    shape, scale = np.exp(p[0]), np.exp(p[1] + covariates @ p[2:])
    if is_dead:
        return stats.weibull_min.logpdf(time, shape, scale=scale)
    return stats.weibull_min.logsf(time, shape, scale=scale)


def mixture(x, p):
    """The log likelihood of a number from three normal distributions."""
    weights = special.log_softmax(p[:3])
    return special.logsumexp(weights + stats.norm.logpdf(x, loc=p[3:6], scale=np.exp(p[6:])))


def probit(row, p):
    """The log likelihood of a binary answer, right in the tails."""
    x, answer = row
    return sc.log_ndtr((2.0 * answer - 1.0) * (x @ p))


def negative_binomial(row, p):
    x, count = row
    mean, size = np.exp(x @ p[1:]), np.exp(p[0])
    return stats.nbinom.logpmf(count, size, size / (size + mean))


def pendulum(data, p):
    """The misfit of an angle, by the method of Runge and Kutta."""
    start, measured = data

    def slope(state):
        return np.stack([state[1], -np.exp(p[0]) * np.sin(state[0]) - p[1] * state[1]])

    state, h = start, 0.05
    for _ in range(10):
        a = slope(state)
        b = slope(state + 0.5 * h * a)
        c = slope(state + 0.5 * h * b)
        d = slope(state + h * c)
        state = state + h / 6.0 * (a + 2.0 * b + 2.0 * c + d)
    return (state[0] - measured) ** 2


def tomography(ray, p):
    """The misfit of a line through an image of 4 by 4, sampled between its points."""
    (begin, end), measured = ray
    at = begin + np.linspace(0.0, 1.0, 7)[:, np.newaxis] * (end - begin)
    low = np.clip(np.floor(at).astype(int), 0, 2)
    part = at - low
    image = np.reshape(p, (4, 4))
    rows, columns = low[:, 0], low[:, 1]
    upper = image[rows, columns] * (1.0 - part[:, 1]) + image[rows, columns + 1] * part[:, 1]
    below = (
        image[rows + 1, columns] * (1.0 - part[:, 1]) + image[rows + 1, columns + 1] * part[:, 1]
    )
    along = upper * (1.0 - part[:, 0]) + below * part[:, 0]
    return (np.mean(along) * np.linalg.norm(end - begin) - measured) ** 2


KNOTS = np.array([0.0, 0.7, 1.1, 2.0, 2.6, 3.0])


def spline_regression(data, p):
    """The misfit of a natural cubic spline with these values at the knots, and its bending."""
    x, y = data
    spline = interpolate.CubicSpline(KNOTS, p, bc_type="natural")
    return np.sum((spline(x) - y) ** 2) + 0.1 * np.sum(spline(KNOTS, 2) ** 2)


def beams(angle, size=5, count=7):
    """The lengths of parallel beams in the pixels of an image: about, by steps along the beams."""
    along, across = (
        np.array([np.cos(angle), np.sin(angle)]),
        np.array([-np.sin(angle), np.cos(angle)]),
    )
    steps = np.linspace(-0.5, 0.5, 41) * np.sqrt(2.0) * size
    places = np.linspace(-0.5, 0.5, count)[:, np.newaxis, np.newaxis] * size * across
    points = np.floor(places + steps[:, np.newaxis] * along + 0.5 * size).astype(int)
    beam, _ = np.broadcast_arrays(np.arange(count)[:, np.newaxis], points[..., 0])
    inside = np.all((points >= 0) & (points < size), axis=-1)
    pixels = (points[..., 0] * size + points[..., 1])[inside]
    lengths = np.full(pixels.shape, steps[1] - steps[0])
    return scipy.sparse.csr_array((lengths, (beam[inside], pixels)), shape=(count, size**2))


STEPS = scipy.sparse.diags_array([-np.ones(4), np.ones(4)], offsets=[0, 1], shape=(4, 5))
SMOOTHNESS = scipy.sparse.vstack(
    [
        scipy.sparse.kron(STEPS, scipy.sparse.eye_array(5)),
        scipy.sparse.kron(scipy.sparse.eye_array(5), STEPS),
    ]
).tocsr()


def parallel_beams(projection, p):
    """The misfit of a projection of an image of 5 by 5, whose edges cost less than a square."""
    angle, measured = projection
    edges = SMOOTHNESS @ p
    return np.sum((beams(angle) @ p - measured) ** 2) + np.sum(np.sqrt(0.01 + edges**2))


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
    diagonal = conductivity[:-1] + conductivity[1:]
    beside = -conductivity[1:-1]
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

    found = integrate.solve_ivp(
        rates, (0.0, times[-1]), start, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-12
    )
    return np.sum((np.log(found.y) - measured) ** 2)


def stiff_kinetics(data, p):
    """The misfit of the products of Robertson's reactions, whose rates differ by nine orders."""
    end, measured = data

    def rates(t, y, k):
        slow, fast, middle = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
        return np.stack([middle - slow, slow - middle - fast, fast])

    start = np.array([1.0, 0.0, 0.0])
    found = integrate.solve_ivp(
        rates, (0.0, end), start, method="Radau", args=(np.exp(p),), rtol=1e-8, atol=1e-12
    )
    return np.sum((found.y[::2, -1] - measured) ** 2)


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
        anions = total * dissociation / (dissociation + protons)
        return base + protons - anions - 1e-14 / protons

    return (optimize.brentq(charge, 0.0, 14.0, xtol=1e-14) - measured) ** 2


def market(year, p):
    """The misfit of the prices of two goods at which supply meets demand."""
    income, measured = year

    def excess(logs, elasticities):
        own, cross = elasticities
        demand = income * np.exp(-own * logs + cross * logs[::-1])
        return demand - np.exp(p[2:] + 0.5 * logs)

    logs = optimize.root(excess, np.zeros(2), args=(np.exp(p[:2]),), tol=1e-13).x
    return np.sum((logs - measured) ** 2)


def drawn(count, *shape):
    return [random.normal(size=shape) for _ in range(count)]


def pairs(first, second):
    return list(zip(first, second, strict=True))


PROGRAMS = {
    "Kalman filter": (kalman_filter, drawn(3, 6), drawn(1, 3)[0]),
    "Gaussian process": (gaussian_process, pairs(drawn(3, 5), drawn(3, 5)), drawn(1, 3)[0]),
    "hidden Markov model": (
        hidden_markov,
        [random.poisson(2.0, size=5) for _ in range(3)],
        np.array([0.5, 1.0, 0.2, 1.3]),
    ),
    "reaction": (
        reaction,
        [(time, np.array([0.4, 0.4, 0.2])) for time in (0.3, 1.0, 2.0)],
        drawn(1, 3)[0],
    ),
    "Ising mean field": (ising_mean_field, [m + m.T for m in drawn(3, 4, 4)], drawn(1, 4)[0]),
    "deconvolution": (deconvolution, drawn(3, 8), drawn(1, 8)[0]),
    "survival": (
        survival,
        [(0.7, True, np.ones(2)), (1.9, False, np.zeros(2)), (1.2, True, np.array([1.0, -1.0]))],
        drawn(1, 4)[0],
    ),
    "mixture": (mixture, [-1.0, 0.3, 2.0], drawn(1, 9)[0]),
    "probit": (
        probit,
        pairs(drawn(3, 3), (0, 1, 1)),
        9.0 * np.ones(3),
    ),
    "negative binomial": (
        negative_binomial,
        pairs(drawn(3, 2), (0, 3, 7)),
        drawn(1, 3)[0],
    ),
    "pendulum": (
        pendulum,
        [(np.array([0.3, 0.0]), 0.2), (np.array([1.0, -0.5]), 0.6), (np.array([2.0, 0.1]), 1.9)],
        np.array([0.4, 0.1]),
    ),
    "tomography": (
        tomography,
        [(np.array([[0.1, 0.2], [2.7, 2.9]]), 1.0), (np.array([[2.9, 0.3], [0.2, 1.1]]), 0.5)],
        drawn(1, 16)[0],
    ),
    "spline regression": (
        spline_regression,
        pairs(
            [np.linspace(0.1, 2.9, 7), np.array([0.7, 2.0])], [random.normal(size=7), np.ones(2)]
        ),
        drawn(1, 6)[0],
    ),
    "parallel beams": (parallel_beams, pairs([0.0, 0.6, 1.9], drawn(3, 7)), drawn(1, 25)[0]),
    "ARMA": (arma, drawn(3, 12), drawn(1, 5)[0]),
    "heat conduction": (heat_conduction, pairs(drawn(3, 6), drawn(3, 6)), 0.3 * drawn(1, 7)[0]),
    "predator and prey": (
        predator_prey,
        [
            (np.array([0.0, 0.4, 1.1]), np.array([1.0, 0.5]), 0.1 * np.ones((2, 3))),
            (np.array([0.5, 0.9]), np.array([2.0, 0.7]), np.zeros((2, 2))),
        ],
        np.array([0.1, -0.2, 0.3, -0.4]),
    ),
    "stiff kinetics": (
        stiff_kinetics,
        [(0.02, np.array([0.9, 0.05])), (0.1, np.array([0.8, 0.2]))],
        np.log([0.4, 3e7, 1e4]),
    ),
    "random effect": (
        random_effect,
        pairs(drawn(2, 4, 2), (np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0]))),
        np.array([-0.3, 0.5, -0.7]),
    ),
    "acid": (
        acid,
        [(0.0, 2.9), (0.02, 4.3), (0.05, 4.7), (0.12, 12.0)],
        np.array([np.log(0.1), 4.76]),
    ),
    "market": (
        market,
        [(1.0, np.array([0.1, -0.2])), (1.4, np.array([0.3, 0.0]))],
        np.array([-0.1, -1.2, 0.2, -0.3]),
    ),
}
