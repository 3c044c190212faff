"""Arrays of other kinds and layouts, and functions of NumPy that have a plainer form."""

import math

import numpy as np

import daskgrad as dg
from style_pairs.pairs import ROUNDING, Pair, T, X, Y, misfit, of_model

random = np.random.default_rng(2)

TABLE = random.standard_normal((200, 3))
GROUPS = random.standard_normal((8, 20))
MONTHS = np.arange(60) % 12 + 1
YEARS = np.sin(np.arange(60.0))
COUNTS, DAYS = random.integers(0, 9, 60), np.arange(60)
MATRICES, VECTORS = random.standard_normal((30, 4, 4)), random.standard_normal((30, 4))
FREQUENCIES = np.linspace(0.1, 10.0, 60)
RESPONSE = 1.0 / (1.0 + 1j * FREQUENCIES)
KNOTS, PLACES = np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 40)
HATS = np.maximum(0.0, 1.0 - 5.0 * np.abs(PLACES[:, None] - KNOTS[None, :]))
FOUR, SIX = np.array([1.5, 0.9, 0.1, 0.2]), np.linspace(0.1, 0.7, 6)


def weights_of(t):
    w = np.ones_like(t)
    w[t > 1.0] = 0.5
    w /= w.sum()
    return w


def in_place(p, t, y):
    w = np.ones_like(t)
    w[t > 1.0] = 0.5
    w /= w.sum()
    return np.sum(w * (y - p[0] * np.exp(-p[1] * t)) ** 2)


def weighted(p, t, y, w):
    return np.sum(w * (y - p[0] * np.exp(-p[1] * t)) ** 2)


def line(p, a, b):
    return np.sum((a - p[0] - p[1] * b) ** 2)


def poisson(p, days, counts):
    mean = np.exp(p[0] + p[1] * days / 60)
    return np.sum(mean - counts * np.log(mean))


def along_an_axis(p, groups):
    spread = np.apply_along_axis(np.ptp, 1, groups)
    return np.sum((spread - p[0]) ** 2) + np.sum((groups.mean(axis=1) - p[1]) ** 2)


def by_axis(p, groups):
    return np.sum((np.ptp(groups, axis=1) - p[0]) ** 2) + np.sum((groups.mean(axis=1) - p[1]) ** 2)


@np.vectorize
def season(month):
    return 1.0 if month in (12, 1, 2) else 0.5


def of_months(p, months, y):
    return np.sum((y - p[0] * season(months) - p[1]) ** 2)


def of_seasons(p, seasons, y):
    return np.sum((y - p[0] * seasons - p[1]) ** 2)


def by_einsum(p, matrices, vectors):
    return np.sum((np.einsum("nij,j->ni", matrices, p) - vectors) ** 2)


def by_product(p, matrices, vectors):
    return np.sum((matrices @ p - vectors) ** 2)


def of_complex(p, frequencies, response):
    curve = p[0] / (1.0 + 1j * frequencies * p[1])
    return np.sum(np.abs(response - curve) ** 2)


def of_parts(p, frequencies, real, imaginary):
    size = 1.0 + (frequencies * p[1]) ** 2
    curve, phase = p[0] / size, -p[0] * frequencies * p[1] / size
    return np.sum((real - curve) ** 2 + (imaginary - phase) ** 2)


def by_interp(p, places, y):
    return np.sum((y - np.interp(places, KNOTS, p)) ** 2)


def by_hats(p, hats, y):
    return np.sum((y - hats @ p) ** 2)


def with_math(p, t, y):
    count, scale = len(y), 0.1
    offset = 0.5 * count * math.log(2.0 * math.pi * scale**2)
    return offset + 0.5 * np.sum(((y - p[0] * np.exp(-p[1] * t)) / scale) ** 2)


def with_offset(p, t, y, offset):
    return offset + 0.5 * np.sum(((y - p[0] * np.exp(-p[1] * t)) / 0.1) ** 2)


def by_list(p, t, y):
    curve = np.array([p[0] * np.exp(-p[1] * moment) for moment in t])
    return np.sum((y - curve) ** 2)


def by_stack(p, t, y):
    curve = np.stack([p[0] * np.exp(-p[1] * moment) for moment in t])
    return np.sum((y - curve) ** 2)


OFFSET = 0.5 * 50 * math.log(2.0 * math.pi * 0.1**2)
FIRST, SECOND = (np.ascontiguousarray(TABLE[:, k]) for k in range(2))
T32, Y32 = T.astype(np.float32), Y.astype(np.float32)

PAIRS = [
    of_model("a constant array in place", in_place, T, Y, plain=(weighted, T, Y, weights_of(T))),
    Pair(
        "columns of a table",
        lambda p: dg.delayed(line)(p, FIRST, SECOND),
        lambda p: dg.delayed(line)(p, TABLE[:, 0], TABLE[:, 1]),
        X,
        (line, X, TABLE[:, 0], TABLE[:, 1]),
    ),
    of_model("lists of numbers", misfit, T, list(Y), plain=(misfit, T, Y)),
    of_model(
        "data in single precision",
        *(misfit, T32, Y32),
        plain=(misfit, T32.astype(float), Y32.astype(float)),
        rounding=1e-5,
    ),
    of_model(
        "data that are integers",
        *(poisson, DAYS, COUNTS),
        plain=(poisson, DAYS.astype(float), COUNTS.astype(float)),
    ),
    of_model(
        "complex numbers",
        *(of_complex, FREQUENCIES, RESPONSE),
        plain=(of_parts, FREQUENCIES, RESPONSE.real.copy(), RESPONSE.imag.copy()),
        rounding=ROUNDING,
    ),
    of_model("np.apply_along_axis", along_an_axis, GROUPS, plain=(by_axis, GROUPS)),
    of_model(
        "np.vectorize of constants",
        of_months,
        MONTHS,
        YEARS,
        plain=(of_seasons, season(MONTHS), YEARS),
    ),
    of_model(
        "np.einsum",
        *(by_einsum, MATRICES, VECTORS),
        plain=(by_product, MATRICES, VECTORS),
        point=FOUR,
        rounding=ROUNDING,
    ),
    of_model(
        "np.interp",
        *(by_interp, PLACES, np.sin(3.0 * PLACES)),
        plain=(by_hats, HATS, np.sin(3.0 * PLACES)),
        point=SIX,
        rounding=ROUNDING,
    ),
    of_model("constants of math", with_math, T, Y, plain=(with_offset, T, Y, OFFSET)),
    of_model(
        "np.array of a list of traced numbers",
        by_list,
        T,
        Y,
        plain=(by_stack, T, Y),
        rounding=ROUNDING,
    ),
]
