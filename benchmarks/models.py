"""The models of ``compiled.py``: 25 small ones, as people write them.

Each is a function of the NumPy to be used (autograd's or JAX's) and of one array; data are made
once, with a fixed seed. Three have a size, and a gradient written by hand.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import autograd
import autograd.numpy as anp
import autograd.scipy.stats as stats
import numpy
from autograd.scipy.special import logsumexp

random = numpy.random.default_rng(0)
normal = random.standard_normal


class Example(NamedTuple):
    name: str
    fun: Callable[[Any, Any], Any]  # of the NumPy, and of a point
    point: Any
    by_hand: Callable[[Any], tuple] | None = None  # value and gradient
    in_jax: bool = True

    @property
    def model(self) -> Callable[[Any], Any]:
        return partial(self.fun, anp)


# ------------------------------------------------------------------------- models with a size


def embedded_atom(np, r):
    """Pair repulsion and the energy of an atom in the density of its neighbours."""
    pairs = np.exp(-10.9 * (r - 1.0))
    density = np.exp(-5.5 * (r - 1.0))
    return 0.1 * np.sum(pairs) - 1.3 * np.sqrt(np.sum(density))


def embedded_atom_by_hand(r):
    pairs = numpy.exp(-10.9 * (r - 1.0))
    density = numpy.exp(-5.5 * (r - 1.0))
    root = numpy.sqrt(numpy.sum(density))
    value = 0.1 * numpy.sum(pairs) - 1.3 * root
    return value, (0.65 * 5.5 / root) * density - (0.1 * 10.9) * pairs


def embedded_atom_in_two_passes(r):
    """Value and gradient as most people write them: two functions."""
    value = embedded_atom(numpy, r)
    pairs = numpy.exp(-10.9 * (r - 1.0))
    density = numpy.exp(-5.5 * (r - 1.0))
    return value, 0.65 * 5.5 / numpy.sqrt(numpy.sum(density)) * density - 0.1 * 10.9 * pairs


def logistic_regression(rows):
    features, signs = normal((rows, 10)), numpy.sign(normal(rows))

    def loss(np, weights):
        return np.sum(np.log1p(np.exp(-signs * np.dot(features, weights)))) + np.sum(weights**2)

    def by_hand(weights):
        powers = numpy.exp(-signs * (features @ weights))
        slopes = -signs * powers / (1.0 + powers)
        value = numpy.sum(numpy.log1p(powers)) + numpy.sum(weights**2)
        return value, slopes @ features + 2.0 * weights

    return loss, normal(10) / 10, by_hand


def chain(np, x):
    """Eight links of elementwise functions."""
    for _ in range(8):
        x = np.sin(x) + 0.5 * np.tanh(x)
    return np.sum(x**2)


def chain_by_hand(x):
    slopes = []
    for _ in range(8):
        sine, tanh = numpy.sin(x), numpy.tanh(x)
        slopes.append(numpy.cos(x) + 0.5 * (1.0 - tanh**2))
        x = sine + 0.5 * tanh
    gradient = 2.0 * x
    for slope in reversed(slopes):
        gradient = gradient * slope
    return numpy.sum(x**2), gradient


def of_size(size: int) -> list[Example]:
    """The models that have a size: numbers, or rows."""
    distances = 1.0 + 0.2 * random.random(size)
    loss, weights, by_hand = logistic_regression(size)
    return [
        Example("embedded atom", embedded_atom, distances, embedded_atom_by_hand),
        Example("logistic regression", loss, weights, by_hand),
        Example("chain of 8", chain, normal(size), chain_by_hand),
    ]


# ----------------------------------------------------------------------------------- networks


def perceptron(np, weights):
    activations, start = BATCH, 0
    for rows, columns in itertools.pairwise((6, 16, 16, 1)):
        stop = start + rows * columns
        matrix = np.reshape(weights[start:stop], (rows, columns))
        bias, start = weights[stop : stop + columns], stop + columns
        activations = np.tanh(np.dot(activations, matrix) + bias)
    return np.mean((activations[:, 0] - TARGETS) ** 2)


BATCH, TARGETS = normal((20, 6)), normal(20)


def recurrent_network(np, weights):
    state = np.zeros(8)
    for row in SEQUENCE:
        state = np.tanh(np.dot(weights[:, :8], state) + np.dot(weights[:, 8:], row))
    return np.sum(state**2)


SEQUENCE = normal((15, 8))


def long_short_term_memory(np, weights):
    state, cell = np.zeros(8), np.zeros(8)
    for row in SEQUENCE:
        gates = np.dot(weights, np.concatenate([row, state]))
        share, keep, out = [0.5 * (np.tanh(gates[8 * n : 8 * n + 8]) + 1.0) for n in range(3)]
        cell = keep * cell + share * np.tanh(gates[24:])
        state = out * np.tanh(cell)
    return np.sum(state**2)


def attention(np, weights):
    scores = np.einsum("btd,de,bse->bts", TOKENS, weights, TOKENS) / 8.0
    scores = scores - np.max(scores, axis=2, keepdims=True)
    shares = np.exp(scores) / np.sum(np.exp(scores), axis=2, keepdims=True)
    return np.sum(np.einsum("bts,bsd->btd", shares, TOKENS) ** 2)


TOKENS = normal((2, 6, 8))


def convolution(np, kernel):
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + kernel[i, j] * IMAGE[i : 14 + i, j : 14 + j]
    return np.sum(np.maximum(total, 0.0) ** 2)


IMAGE = normal((16, 16))

# --------------------------------------------------------------------------------- statistics


def gaussian_mixture(np, p):
    means, log_weights, log_scales = np.reshape(p[:8], (4, 2)), p[8:12], p[12:]
    distances = np.sum((POINTS[:, None, :] - means) ** 2, axis=2) * np.exp(-2.0 * log_scales)
    shares = log_weights - np.log(np.sum(np.exp(log_weights)))
    terms = shares - 2.0 * log_scales - 0.5 * distances
    if np is not anp:
        return np.sum(np.log(np.sum(np.exp(terms), axis=1)))
    return np.sum(logsumexp(terms, axis=1))


POINTS = normal((50, 2))


def hierarchical_normal(np, p):
    """Log-likelihood of groups with effects of their own, which are integrated out."""
    spread, noise = np.exp(p[0]), np.exp(p[1])
    covariance = noise * np.eye(12) + spread * SAME_GROUP
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, MEASURED - np.dot(DESIGN, p[2:]))
    return -0.5 * np.sum(white**2) - np.sum(np.log(np.diag(factor)))


GROUP = numpy.repeat(numpy.arange(4), 3)
SAME_GROUP = 1.0 * (GROUP[:, None] == GROUP)
MEASURED, DESIGN = normal(12), normal((12, 3))


def gaussian_process(np, p):
    covariance = np.exp(p[0]) * np.exp(-SQUARES * np.exp(p[1])) + np.exp(p[2]) * np.eye(20)
    precision_times_data = np.linalg.solve(covariance, HEIGHTS)
    return -0.5 * np.dot(HEIGHTS, precision_times_data) - 0.5 * np.linalg.slogdet(covariance)[1]


PLACES, HEIGHTS = numpy.sort(random.uniform(0.0, 5.0, 20)), normal(20)
SQUARES = (PLACES[:, None] - PLACES) ** 2


def densities(np, p):
    """Random effects, by SciPy's distributions."""
    prior = np.sum(stats.norm.logpdf(p[2:], 0.0, np.exp(p[0])))
    return prior + np.sum(stats.norm.logpdf(OBSERVED, p[1] + p[2:][GROUPS], 1.0))


OBSERVED, GROUPS = normal(60), random.integers(8, size=60)

# ------------------------------------------------------------------------- equations of motion


def lotka_volterra(np, p):
    """Runge and Kutta's steps of two numbers, in Python."""

    def rates(prey, predators):
        return prey * (p[0] - p[1] * predators), predators * (p[2] * prey - p[3])

    x, y, h = 1.0, 0.5, 0.05
    for _ in range(20):
        a, b = rates(x, y)
        c, d = rates(x + h / 2 * a, y + h / 2 * b)
        e, f = rates(x + h / 2 * c, y + h / 2 * d)
        g, k = rates(x + h * e, y + h * f)
        x, y = x + h / 6 * (a + 2 * c + 2 * e + g), y + h / 6 * (b + 2 * d + 2 * f + k)
    return (x - 1.3) ** 2 + (y - 0.8) ** 2


def coupled_oscillators(np, state):
    """Runge and Kutta's steps of a vector."""

    def rates(y):
        return np.concatenate([y[10:], -np.sin(y[:10]) - 0.1 * np.dot(COUPLING, y[:10])])

    h = 0.05
    for _ in range(10):
        a = rates(state)
        b = rates(state + h / 2 * a)
        c = rates(state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + rates(state + h * c))
    return np.sum(state**2)


COUPLING = normal((10, 10))


def fluid(np, u):
    """Steps of Burgers' equation with periodic boundaries."""
    for _ in range(5):
        left, right = np.roll(u, 1), np.roll(u, -1)
        u = u - 0.1 * u * (right - left) + 0.05 * (left - 2.0 * u + right)
    return np.sum(u**2)


# ------------------------------------------------------------------------- ways to use NumPy


def indices(np, x):
    return np.sum(x[PAIRS[:, 0]] * x[PAIRS[:, 1]]) + x[3] * x[-1] + np.sum(x[::3] ** 2 * x[1::3])


PAIRS = random.integers(30, size=(25, 2))


def joined_parts(np, x):
    rows = np.stack([x[:8], x[8:16] ** 2, np.sin(x[16:])])
    joined = np.concatenate([rows.T, rows.T * 2.0], axis=1)
    turned = np.hstack([joined[:, :3].ravel(), np.expand_dims(x, 0)[0], joined[0]])
    return np.sum(turned**2) + np.sum(np.vstack([x[:4], x[4:8]]) * np.array([1.0, 2.0, 3.0, 4.0]))


def choices(np, x):
    clipped = np.where(x > 0.0, np.maximum(x, 0.3), 0.1 * x)
    return np.sum(np.minimum(clipped, 1.0) ** 2) + np.max(x) - np.min(clipped) + np.sum(np.abs(x))


def assorted(np, x):
    standard = (x - np.mean(x)) / np.std(x)
    return (
        np.sum(np.cumsum(standard) ** 2)
        + np.linalg.norm(x)
        + np.var(np.sort(x)[:10])
        + np.prod(1.0 + 0.1 * x[:5])
        + np.sum(np.outer(x[:5], x[5:10]) ** 2)
        + np.sum(np.diff(x) * np.clip(x[1:], -0.5, 0.5))
    )


def linear_algebra(np, x):
    matrix = np.dot(x, x.T) + 8.0 * np.eye(8)
    inverse = np.linalg.inv(matrix)
    root = np.linalg.cholesky(matrix)
    solution = np.linalg.solve(matrix, x[0])
    return np.trace(inverse) + np.log(np.linalg.det(matrix)) + np.sum(root) + np.sum(solution**2)


def scalar_chain(np, x):
    for _ in range(100):
        x = np.sin(x) * 1.1
    return x


def branches(np, x):
    y = x[0] ** 2 if x[0] > 0.0 else -x[0]
    return y * np.sum(x) if np.sum(x) < 100.0 else y


def spectrum(np, x):
    waves = np.fft.fft(x) * np.exp(1j * ANGLES)
    return np.sum(np.abs(waves) ** 2 / (1.0 + np.real(waves) ** 2)) + np.sum(np.imag(waves))


ANGLES = random.random(32)


def single_precision(np, x):
    return np.sum(np.exp(-(x**2)) * x)


def loss_of_two(x):
    return anp.sum(anp.log1p(anp.exp(-anp.dot(ROWS, x)))) + anp.sum(x**2)


ROWS, DIRECTION = normal((100, 10)), normal(10)


def hessian_product(np, x):
    product = autograd.hessian_vector_product(loss_of_two)(x, DIRECTION)
    return np.sum(product * DIRECTION)


def directional_derivative(np, x):
    return np.sum(autograd.make_jvp(lambda t: anp.tanh(anp.dot(ROWS, t)))(x)(DIRECTION)[1])


EXAMPLES = [
    *of_size(100),
    Example("perceptron", perceptron, 0.3 * normal(401)),
    Example("recurrent network", recurrent_network, 0.3 * normal((8, 16))),
    Example("long short-term memory", long_short_term_memory, 0.3 * normal((32, 16))),
    Example("attention by einsum", attention, normal((8, 8))),
    Example("convolution", convolution, normal((3, 3))),
    Example("Gaussian mixture", gaussian_mixture, normal(16)),
    Example("hierarchical normal", hierarchical_normal, 0.3 * normal(5)),
    Example("Gaussian process", gaussian_process, numpy.array([0.1, 0.2, -1.0])),
    Example("densities of SciPy", densities, 0.1 * normal(10), in_jax=False),
    Example("Lotka-Volterra", lotka_volterra, numpy.array([1.1, 0.8, 0.6, 0.9])),
    Example("coupled oscillators", coupled_oscillators, normal(20)),
    Example("fluid", fluid, normal(64)),
    Example("indices", indices, normal(30)),
    Example("joined parts", joined_parts, normal(24)),
    Example("choices", choices, normal(50)),
    Example("assorted functions", assorted, normal(20)),
    Example("linear algebra", linear_algebra, normal((8, 8))),
    Example("scalar chain", scalar_chain, 0.7),
    Example("branches", branches, normal(10), in_jax=False),
    Example("complex spectrum", spectrum, normal(32)),
    Example("single precision", single_precision, normal(50).astype(numpy.float32)),
    Example("Hessian product", hessian_product, normal(10), in_jax=False),
    Example("directional derivative", directional_derivative, normal(10), in_jax=False),
]
