"""Steps in time, each a node: ordinary and partial differential equations, Newton's iteration."""

import autograd.numpy as np

import daskgrad as dg
from problems.problem import drawn, vector

# --------------------------------------------- Lotka and Volterra, the classical Runge-Kutta method


def predation(state, rates):
    prey, hunters = state[0], state[1]
    grow = rates[0] * prey - rates[1] * prey * hunters
    return np.array([grow, rates[2] * prey * hunters - rates[3] * hunters])


@dg.delayed
def runge_kutta(state, rates, step):
    first = predation(state, rates)
    second = predation(state + 0.5 * step * first, rates)
    third = predation(state + 0.5 * step * second, rates)
    fourth = predation(state + step * third, rates)
    return state + step / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)


def lotka_volterra(state, rates):
    for _ in range(5):
        state = runge_kutta(state, rates, 0.2)
    return state


# ------------------------------------------------------------------- a pendulum, by velocity Verlet


@dg.delayed
def verlet(state, length):
    angle, speed = state
    half = speed - 0.1 * 9.81 / length * np.sin(angle)
    angle = angle + 0.2 * half
    return angle, half - 0.1 * 9.81 / length * np.sin(angle)


def pendulum(state, length):
    angles = []
    for _ in range(4):
        state = verlet(state, length)
        angles.append(state[0])
    return {"angles": angles, "last": state}


# ----------------------------------------------------- the heat equation, explicit, with fixed ends


@dg.delayed
def heat_step(heat, conductivity):
    flux = conductivity * np.diff(np.concatenate([[0.0], heat, [1.0]]))
    return heat + 0.2 * np.diff(flux)


def heat_equation(heat, conductivity):
    for _ in range(4):
        heat = heat_step(heat, conductivity)
    return heat


# --------------------------------------------------------- Burgers' equation, upwind, on a ring


@dg.delayed
def upwind(speed, viscosity):
    left, right = np.roll(speed, 1), np.roll(speed, -1)
    carried = np.maximum(speed, 0.0) * (speed - left) + np.minimum(speed, 0.0) * (right - speed)
    return speed - 0.1 * carried + viscosity * (left - 2.0 * speed + right)


def burgers(speed, viscosity):
    for _ in range(3):
        speed = upwind(speed, viscosity)
    return speed


# ----------------------------------------- a neural ordinary differential equation, by the midpoint


def perceptron(layers, x):
    for weights, bias in layers[:-1]:
        x = np.tanh(np.dot(weights, x) + bias)
    weights, bias = layers[-1]
    return np.dot(weights, x) + bias


@dg.delayed
def midpoint(layers, x):
    return x + 0.3 * perceptron(layers, x + 0.15 * perceptron(layers, x))


def neural_ode(layers, x):
    for _ in range(3):
        x = midpoint(layers, x)
    return x


LAYERS = [(0.7 * drawn(70, 3, 2), drawn(71, 3)), (0.7 * drawn(72, 2, 3), drawn(73, 2))]

# --------------------------------------------------------- Kepler's equation, by Newton's iteration


@dg.delayed
def newton(anomaly, mean, eccentricity):
    error = anomaly - eccentricity * np.sin(anomaly) - mean
    return anomaly - error / (1.0 - eccentricity * np.cos(anomaly))


def kepler(mean, eccentricity):
    anomaly = mean
    for _ in range(5):
        anomaly = newton(anomaly, mean, eccentricity)
    return anomaly


PROBLEMS = (
    vector(lotka_volterra, np.array([1.2, 0.7]), np.array([1.1, 0.4, 0.3, 0.9])),
    vector(pendulum, (0.8, -0.1), 1.4),
    vector(heat_equation, drawn(74, 5), 1.0 + 0.2 * drawn(75, 6)),
    vector(burgers, np.array([0.6, -0.4, 0.3, 0.9, -0.8]), 0.05),
    vector(neural_ode, LAYERS, np.array([0.5, -0.6])),
    vector(kepler, np.array([0.3, 1.2, 2.5, 4.0]), 0.4),
)
