"""Tables of pandas as arguments and as items of sums."""

import numpy as np
import pandas as pd

from style_pairs.pairs import T, Y, misfit, of_model, of_sum

random = np.random.default_rng(2)

COLUMNS = ["x", "y"]
SCHOOLS = pd.DataFrame(random.standard_normal((1000, 2)), columns=COLUMNS)
SCHOOLS["school"] = np.repeat(np.arange(100), 10)
GROUPS = [group for _, group in SCHOOLS.groupby("school")]
ARRAYS = [(group["x"].to_numpy(), group["y"].to_numpy()) for group in GROUPS]

POINTS = pd.DataFrame(random.standard_normal((300, 2)), columns=COLUMNS)
TUPLES = list(POINTS.itertuples())
NUMBERS = [(float(row.x), float(row.y)) for row in TUPLES]

CURVE = pd.DataFrame({"t": T, "y": Y, "label": ["a"] * len(T)})
THREE = np.array([0.5, 1.2, 0.7])


def of_group(group, p):
    return np.sum((group["y"].to_numpy() - p[0] - p[1] * group["x"].to_numpy()) ** 2)


def of_arrays(item, p):
    x, y = item
    return np.sum((y - p[0] - p[1] * x) ** 2)


def of_row(row, p):
    return (row.y - p[0] - p[1] * np.tanh(p[2] * row.x)) ** 2


def of_numbers(item, p):
    x, y = item
    return (y - p[0] - p[1] * np.tanh(p[2] * x)) ** 2


def of_frame(p, frame):
    return np.sum((frame.y.values - p[0] * np.exp(-p[1] * frame["t"].values)) ** 2)


PAIRS = [
    of_model("a data frame as an argument", of_frame, CURVE, plain=(misfit, T, Y)),
    of_sum("groups of a data frame as items", of_group, GROUPS, plain=(of_arrays, ARRAYS)),
    of_sum(
        "rows of a data frame as items", of_row, TUPLES, plain=(of_numbers, NUMBERS), point=THREE
    ),
]
