"""Small models whose runs are seen: in reports, on pages, in progress and in pictures."""

import autograd.numpy as np
import numpy

import daskgrad as dg

X = numpy.array([0.3, 0.5, 0.9])
EVIL = "<script>alert(1)</script>"  # a name that must be shown, and not run


def wave(x):
    return np.sin(x)


def total(y):
    return np.sum(y * y)


def term(item, x):
    return np.sum(np.sin(item * x))


def graph(x):
    return dg.delayed(total)(dg.delayed(wave, name=EVIL)(x))
