"""Steps in time, each a node: ordinary and partial differential equations, Newton's iteration."""

import autograd.numpy as np

import daskgrad as dg
from problems.problem import drawn, vector

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

PROBLEMS = (
    vector(pendulum, (0.8, -0.1), 1.4),
    vector(burgers, np.array([0.6, -0.4, 0.3, 0.9, -0.8]), 0.05),
    vector(neural_ode, LAYERS, np.array([0.5, -0.6])),
)
