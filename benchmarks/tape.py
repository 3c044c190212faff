"""How fast one model's value and gradient are, against plain autograd's.

    python benchmarks/tape.py [--quick]

What is measured: ``daskgrad.autodiff.models.pullbacks.capture``, the body of a model's forward
task (the value, the gradient, which a scalar model keeps, and the fingerprints), against
``autograd.value_and_grad`` of the same function at the same point. Both run in this process, with
one BLAS thread and without Dask. Rounds are interleaved: in each one, both run for the same number
of calls, and take turns in going first. A time is the median over the rounds, a ratio the median
over the rounds of daskgrad's time over autograd's; less than one is faster than autograd.

The stencil is measured twice, because a good part of its time may be page faults: with its default
thresholds, glibc gives the top of the heap back to the system and takes it again at every pass. The
first line is with the defaults, for information. Then the thresholds are raised, for both programs,
as they are in any process that has once freed an array of some 30 MB.

Two claims are checked, and the script fails when one does not hold: a five-point stencil written
with slices of a 300x300 array is at least 3 times as fast, and the median ratio over the ordinary
models is at most 1.0. So is a third one, before any time is taken: the value has autograd's bits,
and the gradient is autograd's but for rounding.
"""

# ruff: noqa: E402  the number of BLAS threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import autograd.scipy.stats as stats
import numpy
from autograd.scipy.special import logsumexp

from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.trees import flatten

STENCIL_AT_LEAST = 3.0  # times as fast
ROUNDING = 1e-12  # of a gradient, relative to its largest entry
ORDINARY_AT_MOST = 1.0  # median ratio

random = numpy.random.default_rng(0)

# ------------------------------------------------------------------------------- the models


def five_point_stencil(u):
    """The energy of one explicit step of the heat equation."""
    inner = u[1:-1, 1:-1]
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return np.sum((inner + 0.1 * (around - 4.0 * inner)) ** 2)


def logistic_regression(rows, columns):
    features = random.standard_normal((rows, columns))
    signs = numpy.sign(random.standard_normal(rows))

    def loss(weights):
        return np.sum(np.log1p(np.exp(-signs * np.dot(features, weights)))) + np.sum(weights**2)

    return loss, random.standard_normal(columns) / columns


def multilayer_perceptron(batch, widths):
    inputs = random.standard_normal((batch, widths[0]))
    targets = random.standard_normal((batch, widths[-1]))
    shapes = list(itertools.pairwise(widths))

    def loss(weights):
        activations, start = inputs, 0
        for rows, columns in shapes:
            stop = start + rows * columns
            matrix = np.reshape(weights[start:stop], (rows, columns))
            bias, start = weights[stop : stop + columns], stop + columns
            activations = np.tanh(np.dot(activations, matrix) + bias)
        return np.mean((activations - targets) ** 2)

    return loss, 0.1 * random.standard_normal(sum((rows + 1) * cols for rows, cols in shapes))


def gaussian_mixture(points, components):
    data = random.standard_normal((points, 2))

    def log_likelihood(parameters):
        means = np.reshape(parameters[: 2 * components], (components, 2))
        log_weights = parameters[2 * components : 3 * components]
        log_scales = parameters[3 * components :]
        distances = np.sum((data[:, None, :] - means) ** 2, axis=2) * np.exp(-2.0 * log_scales)
        terms = log_weights - logsumexp(log_weights) - 2.0 * log_scales - 0.5 * distances
        return np.sum(logsumexp(terms, axis=1))

    return log_likelihood, random.standard_normal(4 * components)


def recurrent_network(steps, width):
    inputs = random.standard_normal((steps, width))

    def loss(weights):
        state = np.zeros(width)
        for row in inputs:
            state = np.tanh(np.dot(weights, state) + row)
        return np.sum(state**2)

    return loss, random.standard_normal((width, width)) / width


def lotka_volterra(steps):
    """Runge and Kutta's fourth-order steps of prey and predators."""

    def rates(state, p):
        prey, predators = state
        return prey * (p[0] - p[1] * predators), predators * (p[2] * prey - p[3])

    def moved(state, slope, h):
        return tuple(s + h * k for s, k in zip(state, slope, strict=True))

    def misfit(p):
        state, h = (1.0, 0.5), 0.05
        for _ in range(steps):
            k1 = rates(state, p)
            k2 = rates(moved(state, k1, h / 2), p)
            k3 = rates(moved(state, k2, h / 2), p)
            k4 = rates(moved(state, k3, h), p)
            state = tuple(
                s + h / 6 * (a + 2 * b + 2 * c + d)
                for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
            )
        return (state[0] - 1.3) ** 2 + (state[1] - 0.8) ** 2

    return misfit, numpy.array([1.1, 0.8, 0.6, 0.9])


def log_determinant(size):
    base = random.standard_normal((size, size))

    def energy(factors):
        matrix = np.dot(factors, factors.T) + size * np.eye(size)
        return (
            np.linalg.slogdet(matrix)[1] + np.trace(np.linalg.inv(matrix)) + np.sum(base * factors)
        )

    return energy, random.standard_normal((size, size))


def cholesky_log_density(size):
    """A Gaussian process' log marginal likelihood."""
    places, data = numpy.sort(random.uniform(0.0, 5.0, size)), random.standard_normal(size)
    squares = (places[:, None] - places) ** 2

    def log_density(p):
        covariance = np.exp(p[0]) * np.exp(-squares * np.exp(p[1])) + np.exp(p[2]) * np.eye(size)
        factor = np.linalg.cholesky(covariance)
        white = np.linalg.solve(factor, data)
        return -0.5 * np.sum(white**2) - np.sum(np.log(np.diag(factor)))

    return log_density, numpy.array([0.1, 0.2, -1.0])


def scalar_chain(length):
    def chain(x):
        for _ in range(length):
            x = np.sin(x) * 1.1
        return x

    return chain, 0.7


def tiny(x):
    return x**2 + np.exp(-x)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def entry_loop(v):
    total = 0.0
    for i in range(len(v) - 1):
        total = total + v[i] * np.cos(v[i + 1])
    return total


def masked_residuals(size):
    observed = random.uniform(size=size) < 0.7
    data = random.standard_normal(size)

    def misfit(x):
        wave = np.sin(x) * np.exp(0.1 * x)
        return np.sum((wave[observed] - data[observed]) ** 2) + np.sum(
            np.where(x > 0.0, x, 0.1 * x)
        )

    return misfit, random.standard_normal(size)


def random_effects(observations, groups):
    group = random.integers(groups, size=observations)
    data = random.standard_normal(observations)

    def log_posterior(p):
        effects = p[2:]
        log_prior = np.sum(stats.norm.logpdf(effects, 0.0, np.exp(p[0])))
        return log_prior + np.sum(stats.norm.logpdf(data, p[1] + effects[group], 1.0))

    return log_posterior, 0.1 * random.standard_normal(groups + 2)


def attention(tokens, width):
    values = random.standard_normal((4, tokens, width))

    def energy(weights):
        scores = np.einsum("btd,de,bse->bts", values, weights, values) / width
        scores = scores - np.max(scores, axis=2, keepdims=True)
        shares = np.exp(scores) / np.sum(np.exp(scores), axis=2, keepdims=True)
        return np.sum(np.einsum("bts,bsd->btd", shares, values) ** 2)

    return energy, random.standard_normal((width, width))


def polynomial_fit(size):
    places, data = random.uniform(-1.0, 1.0, size), random.standard_normal(size)

    def misfit(coefficients):
        value = coefficients[-1]
        for k in range(len(coefficients) - 2, -1, -1):
            value = value * places + coefficients[k]
        return np.mean((value - data) ** 2)

    return misfit, random.standard_normal(8)


def image_convolution(size):
    image = random.standard_normal((size, size))

    def energy(kernel):
        total = 0.0
        for i in range(3):
            for j in range(3):
                total = total + kernel[i, j] * image[i : size - 2 + i, j : size - 2 + j]
        return np.sum(np.maximum(total, 0.0) ** 2)

    return energy, random.standard_normal((3, 3))


class Case(NamedTuple):
    name: str
    fun: Callable[[Any], Any]
    point: Any


STENCIL = Case("five-point stencil 300x300", five_point_stencil, random.standard_normal((300, 300)))

ORDINARY = [
    Case("x² + exp(-x)", tiny, 0.3),
    Case("scalar chain of 200", *scalar_chain(100)),
    Case("Rosenbrock, 10", rosenbrock, random.standard_normal(10)),
    Case("Rosenbrock, 100,000", rosenbrock, random.standard_normal(100_000)),
    Case("entries v[i] in a loop, 60", entry_loop, random.standard_normal(60)),
    Case("logistic regression 200x10", *logistic_regression(200, 10)),
    Case("logistic regression 20,000x50", *logistic_regression(20_000, 50)),
    Case("perceptron 32 x (20, 30, 1)", *multilayer_perceptron(32, (20, 30, 1))),
    Case("perceptron 256 x (64, 128, 128, 10)", *multilayer_perceptron(256, (64, 128, 128, 10))),
    Case("Gaussian mixture 500x4", *gaussian_mixture(500, 4)),
    Case("recurrent network 50x16", *recurrent_network(50, 16)),
    Case("Lotka-Volterra, 20 RK4 steps", *lotka_volterra(20)),
    Case("log-determinant and inverse, 30", *log_determinant(30)),
    Case("Gaussian process, 80", *cholesky_log_density(80)),
    Case("masked residuals, 5,000", *masked_residuals(5_000)),
    Case("random effects 2,000 in 40", *random_effects(2_000, 40)),
    Case("attention by einsum 4x20x16", *attention(20, 16)),
    Case("Horner's scheme, 1,000", *polynomial_fit(1_000)),
    Case("convolution 64x64 by 3x3", *image_convolution(64)),
]

# ---------------------------------------------------------------------------- the two programs


def ours(case: Case, backend: str = "autograd") -> Callable[[], tuple]:
    """Value and gradient as the forward task of a scalar model takes them."""
    model = Model(case.fun, case.name, backend, keep="gradient")
    leaves, spec = flatten(((None,), {}))
    call = Call(tuple(leaves), Structure(spec), ((0, 0),))

    def value_and_gradient():
        captured = capture(model, call, [Active(0, watched=False)], [case.point])
        return captured.value, captured.pullback.leaves[0]

    return value_and_gradient


def autograds(case: Case) -> Callable[[], tuple]:
    value_and_grad = autograd.value_and_grad(case.fun)
    return lambda: value_and_grad(case.point)


def require_same(case: Case) -> None:
    (value, gradient), (expected, slope) = ours(case)(), autograds(case)()
    if numpy.asarray(value).tobytes() != numpy.asarray(expected).tobytes():
        raise SystemExit(f"{case.name}: the value has not autograd's bits")
    if not numpy.max(numpy.abs(gradient - slope)) <= ROUNDING * numpy.max(numpy.abs(slope)):
        raise SystemExit(f"{case.name}: the gradient is not autograd's")


# -------------------------------------------------------------------------------- measuring


class Measured(NamedTuple):
    ours: float  # seconds
    autograd: float
    ratio: float


def measure(case: Case, rounds: int, seconds: float) -> Measured:
    """Times of one call, over interleaved rounds that last about ``seconds`` each."""
    gc.collect()
    programs = (ours(case), autograds(case))
    calls = max(1, int(seconds / 2 / max(time_of(program, 2) for program in programs)))
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(time_of(programs[which], calls))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(*times, strict=True))
    return Measured(*map(statistics.median, times), ratio)


def time_of(program: Callable[[], Any], calls: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(calls):
        program()
    return (time.perf_counter() - start) / calls


def raise_malloc_thresholds() -> None:
    """glibc's dynamic thresholds rise to the largest block that was freed, up to 32 MB."""
    block = numpy.empty(31 << 20, dtype=numpy.uint8)
    del block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    rounds, seconds = (9, 0.04) if quick else (31, 0.06)

    for case in (STENCIL, *ORDINARY):
        require_same(case)
    print(f"{'model':<38}{'daskgrad':>12}{'autograd':>12}{'ratio':>8}")
    reported(STENCIL._replace(name="stencil, malloc's default thresholds"), rounds, seconds)
    raise_malloc_thresholds()
    stencil = reported(STENCIL, rounds, seconds)
    ratios = [reported(case, rounds, seconds).ratio for case in ORDINARY]
    faster, median = 1.0 / stencil.ratio, statistics.median(ratios)
    print(f"\nstencil: {faster:.1f} times as fast (at least {STENCIL_AT_LEAST:.1f} is required)")
    print(f"ordinary models: median ratio {median:.2f} (at most {ORDINARY_AT_MOST:.1f} is allowed)")
    return int(faster < STENCIL_AT_LEAST or median > ORDINARY_AT_MOST)


def reported(case: Case, rounds: int, seconds: float) -> Measured:
    measured = measure(case, rounds, seconds)
    times = f"{measured.ours * 1e6:>9.0f} µs{measured.autograd * 1e6:>9.0f} µs"
    print(f"{case.name:<38}{times}{measured.ratio:>8.2f}", flush=True)
    return measured


if __name__ == "__main__":
    sys.exit(main())
