"""What tests of bad input share: models, arguments, and objects that nodes hide in."""

import dataclasses

import autograd.numpy as anp
import numpy as np

import daskgrad as dg

X = np.array([0.3, 0.5, 0.9])
C = np.array([1.0, 2.0, 3.0])
MATRIX = np.arange(9.0).reshape(3, 3) + 5.0 * np.eye(3)


@dg.delayed
def energy(x):
    return anp.sum(x**2)


@dg.delayed
def double(x):
    return 2.0 * x


def notes(error):
    return " ".join(getattr(error, "__notes__", []))


def named(fun, name):
    fun.__name__ = name
    return fun


@dataclasses.dataclass
class Unregistered:
    inside: object


def differences(fun, x, step=1e-6):
    sides = [(fun(x + step * e), fun(x - step * e)) for e in np.eye(len(x))]
    return np.array([(up - down) / (2 * step) for up, down in sides])
