"""The problems in JAX: one plain function each, written in JAX's own way, with the same data."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp

from problems import geometry, matrices, physics, recurrent, signals, statistics

# ------------------------------------------------------------------------------- optimization


def rosenbrock_sum(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def beale(x, y):
    return jnp.sum((jnp.array([1.5, 2.25, 2.625]) - x + x * y ** jnp.array([1, 2, 3])) ** 2)


def helical_valley(x):
    angle = jnp.arctan2(x[1], x[0]) / (2.0 * math.pi)
    return jnp.stack([10.0 * x[2] - 100.0 * angle, 10.0 * jnp.hypot(x[0], x[1]) - 10.0, x[2]])


def powell_singular(x):
    return [
        x[0] + 10.0 * x[1],
        jnp.sqrt(5.0) * (x[2] - x[3]),
        (x[1] - 2.0 * x[2]) ** 2,
        jnp.sqrt(10.0) * (x[0] - x[3]) ** 2,
    ]


# ---------------------------------------------------------------------------------- recurrent


def rnn_scan(weights, hidden):
    def step(hidden, seen):
        x, target = seen
        pressed = weights["hidden"] @ hidden + weights["input"] @ x + weights["bias"]
        return jnp.tanh(pressed), (jnp.tanh(pressed).sum() - target) ** 2

    _, losses = jax.lax.scan(step, hidden, (recurrent.INPUTS, recurrent.TARGETS))
    return losses.sum()


def kalman_filter(angle, logs, mean):
    turn = jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]])
    transition, seen = 0.9 * turn, jnp.array([1.0, 0.5])

    def step(state, observed):
        mean, cov = state
        mean = transition @ mean
        cov = transition @ cov @ transition.T + jnp.diag(jnp.exp(logs[:2]))
        error, spread = observed[0] - seen @ mean, seen @ cov @ seen + jnp.exp(logs[2])
        gain = cov @ seen / spread
        fit = -0.5 * (error**2 / spread + jnp.log(2.0 * math.pi * spread))
        return (mean + gain * error, cov - jnp.outer(gain, seen @ cov)), fit

    return jax.lax.scan(step, (mean, jnp.eye(2)), recurrent.OBSERVED)[1].sum()


def hidden_markov(transition, emission):
    transition, emission = jax.nn.softmax(transition, axis=1), jax.nn.softmax(emission, axis=1)
    alpha = emission[:, recurrent.SYMBOLS[0]]
    for symbol in recurrent.SYMBOLS[1:]:
        alpha = (alpha @ transition) * emission[:, symbol]
    return jnp.log(alpha.sum())


# --------------------------------------------------------------------------------- statistics


def gaussian_mixture(alphas, means, logs, lower):
    def component(alpha, mean, log, low, point):
        x, y = (point - mean)[0], (point - mean)[1]
        square = (jnp.exp(log[0]) * x) ** 2 + (low * x + jnp.exp(log[1]) * y) ** 2
        return alpha + log.sum() - 0.5 * square

    components = jax.vmap(component, (0, 0, 0, 0, None))
    densities = jax.vmap(components, (None, None, None, None, 0))(
        alphas, means, logs, lower, jnp.stack(statistics.POINTS)
    )
    prior = 0.5 * statistics.GAMMA**2 * (jnp.sum(jnp.exp(logs) ** 2) + lower @ lower)
    fit = jnp.sum(logsumexp(densities, axis=1) - logsumexp(alphas))
    return fit + prior - statistics.M * logs.sum()


def logistic_regression(weights, intercept):
    logits = statistics.ROWS @ weights + intercept
    fit = jax.nn.softplus(logits) - statistics.LABELS * logits
    return fit.mean() + 0.05 * weights @ weights


def softmax_regression(layer):
    logs = jax.nn.log_softmax(statistics.ROWS @ layer["weights"] + layer["bias"], axis=1)
    return -jnp.sum(jax.nn.one_hot(statistics.CLASSES, 3) * logs)


def poisson_multilevel(effects, coefficients, log_scale):
    fit = 0.0
    for effect, group in zip(effects, statistics.GROUPS, strict=True):
        rates = group["exposure"] * jnp.exp(group["rows"] @ coefficients + effect)
        fit += jnp.sum(group["counts"] * jnp.log(rates) - rates)
    return fit - jnp.sum(0.5 * effects**2 * jnp.exp(-2.0 * log_scale) + log_scale)


def student_regression(weights, log_scale, log_freedom):
    freedom = jnp.exp(log_freedom)
    z = (statistics.RESPONSES - statistics.ROWS @ weights) / jnp.exp(log_scale)
    half = 0.5 * (freedom + 1.0)
    constant = gammaln(half) - gammaln(0.5 * freedom) - 0.5 * jnp.log(math.pi * freedom)
    return jnp.sum(constant - log_scale - half * jnp.log1p(z**2 / freedom))


def cox_regression(weights):
    risk = statistics.ROWS @ weights
    at_risk = [jnp.log(jnp.sum(jnp.exp(risk[i:]))) for i in range(len(risk))]
    return statistics.LABELS @ (risk - jnp.stack(at_risk))


def order_statistics(sample):
    low, second, third, fourth, high = jnp.sort(sample)
    middle = jnp.stack([second, third, fourth])
    spread = jnp.sqrt(jnp.mean((middle - middle.mean()) ** 2))
    return jnp.log(second - low) + jnp.log(fourth - third) + spread * high


# ----------------------------------------------------------------------------------- geometry


def rotation(axis):
    """The exponential of the cross product's matrix."""
    angle = jnp.linalg.norm(axis)
    x, y, z = axis / angle
    cross = jnp.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return jnp.eye(3) + jnp.sin(angle) * cross + (1.0 - jnp.cos(angle)) * cross @ cross


def bundle_adjustment(cameras, points, weights):
    errors = []
    for i, (c, p) in enumerate(geometry.SEEN):
        camera = cameras[c]
        x, y, z = rotation(camera["axis"]) @ (points[p] - camera["centre"])
        square = (x**2 + y**2) / z**2
        factor = camera["focal"] * (1.0 + square * (camera["radial"] @ jnp.stack([1.0, square])))
        shown = jnp.stack([x, y]) / z * factor + camera["principal"]
        errors.append(weights[i] * (shown - geometry.FEATURES[i]))
    return {"reprojection": errors, "weight": 1.0 - weights**2}


def hand_tracking(pose, scale):
    def about(axis, angle):
        return rotation(angle * jnp.eye(3)[axis])

    def turned(angles):
        return about(2, angles[2]) @ about(1, angles[1]) @ about(0, angles[0])

    turn, origin, errors = turned(pose["wrist"]), pose["origin"], []
    for bend, measured in zip(pose["bends"], geometry.MEASURED, strict=True):
        turn = turn @ turned(bend)
        origin = origin + turn @ geometry.BONE
        placed = jax.vmap(lambda vertex, turn=turn, origin=origin: turn @ vertex * scale + origin)
        errors.append((measured - placed(geometry.VERTICES)).reshape(-1))
    return tuple(errors)


# ----------------------------------------------------------------------------------- dynamics


def pendulum(state, length):
    def step(state, _):
        angle, speed = state
        pull = -9.81 / length * jnp.sin(angle)
        moved = angle + 0.2 * speed + 0.02 * pull
        speed = speed + 0.1 * (pull - 9.81 / length * jnp.sin(moved))
        return (moved, speed), moved

    last, angles = jax.lax.scan(step, (jnp.asarray(state[0]), jnp.asarray(state[1])), length=4)
    return {"angles": list(angles), "last": last}


def burgers(speed, viscosity):
    for _ in range(3):
        left, right = jnp.roll(speed, 1), jnp.roll(speed, -1)
        slope = jnp.where(speed > 0.0, speed - left, right - speed)
        speed = speed - 0.1 * speed * slope + viscosity * (left - 2.0 * speed + right)
    return speed


def neural_ode(layers, x):
    (inner, shift), (outer, offset) = layers

    def slope(x):
        return outer @ jnp.tanh(inner @ x + shift) + offset

    for _ in range(3):
        x = x + 0.3 * slope(x + 0.15 * slope(x))
    return x


# ----------------------------------------------------------------------------------- matrices


def log_determinant(matrix):
    size = matrix[0] @ jnp.cross(matrix[1], matrix[2])
    return jnp.sign(size) * jnp.log(jnp.abs(size)) ** 2 + size


def linear_solve(matrix, right):
    return jnp.linalg.solve(matrix @ matrix, right)


def matrix_inverse(matrix):
    return 0.5 * (jnp.eye(3) + jnp.linalg.solve(matrix, matrix.T))


def principal_component(matrix):
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    return eigenvalues[-1] * jnp.outer(vectors[:, -1], vectors[:, -1])


def nuclear_norm(matrix):
    """The eigenvalues of the matrix's Gram matrix, two by two, in closed form."""
    gram = matrix.T @ matrix
    half, size = 0.5 * jnp.trace(gram), jnp.linalg.det(gram)
    spread = jnp.sqrt(half**2 - size)
    singular = jnp.sqrt(jnp.stack([half + spread, half - spread]))
    return jnp.sum(jnp.sqrt(1.0 + singular))


def gaussian_process(logs, places):
    squares = (places[:, None] - places) ** 2
    kernel = jnp.exp(logs["signal"] - 0.5 * squares * jnp.exp(-2.0 * logs["length"]))
    matrix = kernel + jnp.exp(logs["noise"]) * jnp.eye(len(places))
    zero = jnp.zeros(len(places))
    return jax.scipy.stats.multivariate_normal.logpdf(matrices.HEIGHTS, zero, matrix)


def tensor_train(cores, vectors):
    left = jnp.ones(2)
    for core, end in zip(cores, vectors, strict=True):
        left = left @ jnp.einsum("aib,i->ab", core, end)
    return left


# ------------------------------------------------------------------------------------ physics


def lennard_jones(atoms, depth):
    i, j = physics.PAIRS.T
    inverse = jnp.sum((atoms[i] - atoms[j]) ** 2, axis=1) ** -3
    return 4.0 * depth * jnp.sum(inverse * (inverse - 1.0))


def coulomb(atoms, charges):
    squares = jnp.sum((atoms[:, None, :] - physics.CORNERS) ** 2, axis=2)
    others = 1.0 - jnp.eye(len(atoms))
    return charges[0] * charges[1] * jnp.sum(others / jnp.sqrt(0.1 + squares))


def tour_length(cities):
    stops = jnp.stack(cities)
    return jnp.sum(jnp.sqrt(jnp.sum((jnp.roll(stops, -1, axis=0) - stops) ** 2, axis=1)))


def gravity(masses, probe, softening):
    apart = physics.CORNERS - probe
    return (masses * (softening + jnp.sum(apart**2, axis=1)) ** -1.5) @ apart


def fall(masses, probe, speed):
    first = speed + 0.1 * gravity(masses, probe, 0.3)
    second = first + 0.1 * gravity(masses, probe + 0.1 * speed, 0.3)
    return probe + 0.1 * (speed + first), second


# ------------------------------------------------------------------------------------ signals


def power_spectrum(signal, width):
    times = jnp.arange(6) - 3.0
    waves = jnp.exp(-2j * math.pi / 6.0 * jnp.outer(jnp.arange(4), jnp.arange(6)))
    return jnp.abs(waves @ (signal * jnp.exp(-0.5 * (times / width) ** 2))) ** 2


def deblurring(signal, log_scale):
    smooth = jnp.fft.irfft(signals.BLUR[:4] * jnp.fft.rfft(signal), 6)
    fit = jnp.sum((smooth - signals.BLURRED) ** 2) / jnp.exp(log_scale) + log_scale
    return fit + jnp.sum(jnp.hypot(0.1, signal[1:] - signal[:-1]))


def convolution(signal, first, second, bias):
    inner = jnp.convolve(signal, first, mode="valid")
    return jnp.convolve(jax.nn.relu(inner + bias) + 0.1 * inner**2, second, mode="valid")
