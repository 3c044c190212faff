"""Items of sums: tuples, objects and records, with names, numbers, dates and gaps."""

import dataclasses
import datetime
from typing import Any, NamedTuple

import numpy as np

import daskgrad as dg
from style_pairs.pairs import ROUNDING, SERIES, TIMES, Pair, X, of_sum, term

random = np.random.default_rng(2)

NAMES = [f"station {k}" for k in range(len(SERIES))]

# -------------------------------------------------------------------------------------- containers


def of_dict(item, p):
    return np.sum((item["y"] - p[0] * np.exp(-p[1] * item["t"])) ** 2)


def of_fields(item, p):
    return np.sum((item.y - p[0] * np.exp(-p[1] * item.t)) ** 2)


class Row(NamedTuple):
    t: Any
    y: Any


@dataclasses.dataclass
class Station:
    t: Any
    y: Any


@dataclasses.dataclass
class Patient:
    """No model uses the number."""

    number: int
    t: Any
    y: Any

    def curve(self, p):
        return p[0] * np.exp(-p[1] * self.t)


def of_patient(patient, p):
    return np.sum((patient.y - patient.curve(p)) ** 2)


class Shot:
    def __init__(self, name, t, y, about):
        self.name, self.t, self.y, self.about = name, t, y, about

    def __repr__(self):
        return f"Shot({self.name})"


SHOTS = [
    Shot(name, t, y, {"operator": "A. B.", "gain": 2.0})
    for name, (t, y) in zip(NAMES, SERIES, strict=True)
]


def of_shot(shot, p):
    return np.sum((shot.y - shot.about["gain"] * p[0] * np.exp(-p[1] * shot.t)) ** 2)


def of_gain(item, p):
    t, y = item
    return np.sum((y - 2.0 * p[0] * np.exp(-p[1] * t)) ** 2)


ROWS = np.stack([y for _, y in SERIES])


def of_row(y, p):
    return np.sum((y - p[0] * np.exp(-p[1] * TIMES)) ** 2)


# --------------------------------------------------------------------------- names, numbers, dates


def of_named(item, p):
    _, t, y = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_labelled(item, p):
    if len(item["t"]) != len(item["y"]):
        raise ValueError(f"item {item['number']} ({item['name']}) has {len(item['t'])} times")
    return np.sum((item["y"] - p[0] * np.exp(-p[1] * item["t"])) ** 2)


LABELLED = [{"number": k, "name": NAMES[k], "t": t, "y": y} for k, (t, y) in enumerate(SERIES)]


def of_numbered(item, p):
    _, (t, y) = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


LEVELS = {"level": np.linspace(0.5, 1.5, len(SERIES)), "rate": np.array(0.4)}
INDEXED = [(k, t, y) for k, (t, y) in enumerate(SERIES)]
BY_ARRAYS = [(np.array(k), t, y) for k, t, y in INDEXED]


def of_index(item, p):
    k, t, y = item
    return np.sum((y - p["level"][k] * np.exp(-p["rate"] * t)) ** 2)


def of_level(item, rate):
    (t, y), level = item
    return np.sum((y - level * np.exp(-rate * t)) ** 2)


def of_name_and_level(item, rate):
    (t, y), _, level = item
    return np.sum((y - level * np.exp(-rate * t)) ** 2)


COUNTS = [(k % 37, 3 + k % 11) for k in range(400)]
AS_FLOATS = [(float(k), float(n)) for k, n in COUNTS]


def of_counts(item, p):
    k, n = item
    return -(k * np.log(p[0]) + n * np.log1p(p[1]))


EPOCH = datetime.date(2020, 1, 1)
DATED = [(EPOCH + datetime.timedelta(days=k), y) for k, (_, y) in enumerate(SERIES)]
OF_DAYS = [(float(k), y) for k, (_, y) in enumerate(SERIES)]


def of_date(item, p):
    date, y = item
    days = (date - EPOCH).days
    return np.sum((y - p[0] - p[1] * days / 100.0) ** 2)


def of_days(item, p):
    days, y = item
    return np.sum((y - p[0] - p[1] * days / 100.0) ** 2)


# ----------------------------------------------------------------------------- items of some kinds

WEIGHTED = [{"t": t, "y": y, "w": None if k % 3 else 1.0 + y**2} for k, (t, y) in enumerate(SERIES)]
WITH_WEIGHTS = [(item["t"], item["y"], item["w"]) for item in WEIGHTED if item["w"] is not None]
WITHOUT = [(item["t"], item["y"]) for item in WEIGHTED if item["w"] is None]


def of_optional(item, p):
    squares = (item["y"] - p[0] * np.exp(-p[1] * item["t"])) ** 2
    if item.get("w") is not None:
        squares = squares * item["w"]
    return np.sum(squares)


def of_weights(item, p):
    t, y, w = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2 * w)


LOSSES = {
    "square": lambda r: np.sum(r**2),
    "soft": lambda r: np.sum(np.sqrt(1.0 + r**2) - 1.0),
}
WITH_LOSS = [
    {"loss": "square" if k % 2 else "soft", "name": NAMES[k], "t": t, "y": y}
    for k, (t, y) in enumerate(SERIES)
]


def by_loss(item, p):
    return LOSSES[item["loss"]](item["y"] - p[0] * np.exp(-p[1] * item["t"]))


def of_soft(item, p):
    t, y = item
    return np.sum(np.sqrt(1.0 + (y - p[0] * np.exp(-p[1] * t)) ** 2) - 1.0)


def gaps_in(k, y):
    values = y.copy()
    values[random.random(len(y)) < 0.1 * (k % 3)] = np.nan
    return values


MISSING = [(t, gaps_in(k, y)) for k, (t, y) in enumerate(SERIES)]
PRESENT = [(t[~np.isnan(y)], y[~np.isnan(y)]) for t, y in MISSING]


def of_present(item, p):
    t, y = item
    present = ~np.isnan(y)
    return np.sum((y[present] - p[0] * np.exp(-p[1] * t[present])) ** 2)


RUNS = [random.standard_normal(5 + k % 12) for k in range(100)]
LABELLED_RUNS = [(run, f"run {k}") for k, run in enumerate(RUNS)]


def of_run(run, p):
    state, total = 0.0, 0.0
    for u in run:
        state = p[0] * state + p[1] * np.tanh(u)
        total = total + state**2
    return total


def of_labelled_run(item, p):
    run, _ = item
    state, total = 0.0, 0.0
    for u in run:
        state = p[0] * state + p[1] * np.tanh(u)
        total = total + state**2
    return total


# ------------------------------------------------------------------------------------------ tables

POINTS = [(float(a), float(b)) for a, b in random.standard_normal((300, 2))]
TABLE = np.array(POINTS)
RECORDS = np.array(
    [(f"p{k}", a, b) for k, (a, b) in enumerate(POINTS)],
    dtype=[("name", "U8"), ("a", float), ("b", float)],
)


def of_record(record, p):
    return (record["b"] - p[0] * np.exp(-p[1] * record["a"])) ** 2


def of_point(point, p):
    a, b = point
    return (b - p[0] * np.exp(-p[1] * a)) ** 2


def of_table(points, p):
    rows = np.array(points)
    return np.sum((rows[:, 1] - p[0] - p[1] * rows[:, 0]) ** 2)


PAIRS = [
    of_sum("items: dicts", of_dict, [{"t": t, "y": y} for t, y in SERIES]),
    of_sum("items: named tuples", of_fields, [Row(*pair) for pair in SERIES]),
    of_sum("items: dataclasses", of_fields, [Station(*pair) for pair in SERIES]),
    of_sum(
        "items: dataclasses with a number",
        of_patient,
        [Patient(k, *pair) for k, pair in enumerate(SERIES)],
    ),
    of_sum("items: objects with text and a dict", of_shot, SHOTS, plain=(of_gain, SERIES)),
    of_sum("items: rows of an array", of_row, ROWS, plain=(of_row, list(ROWS))),
    Pair(
        "items: zipped lists",
        lambda p: dg.map_sum(term, SERIES, p),
        lambda p: dg.map_sum(term, dg.zip([t for t, _ in SERIES], [y for _, y in SERIES]), p),
        X,
        (term, SERIES[0], X),
    ),
    of_sum(
        "items with a name", of_named, [(n, *pair) for n, pair in zip(NAMES, SERIES, strict=True)]
    ),
    of_sum("items with a number and a message", of_labelled, LABELLED),
    Pair(
        "items that are enumerated",
        lambda p: dg.map_sum(term, SERIES, p),
        lambda p: dg.map_sum(of_numbered, list(enumerate(SERIES)), p),
        X,
        (of_numbered, (0, SERIES[0]), X),
    ),
    of_sum(
        "items with an index of parameters",
        of_index,
        INDEXED,
        plain=(of_index, BY_ARRAYS),
        point=LEVELS,
    ),
    Pair(
        "items zipped with names and parameters",
        lambda p: dg.map_sum(of_level, dg.zip(SERIES, p["level"]), p["rate"]),
        lambda p: dg.map_sum(of_name_and_level, dg.zip(SERIES, NAMES, p["level"]), p["rate"]),
        LEVELS,
        (of_name_and_level, (SERIES[0], NAMES[0], LEVELS["level"][0]), LEVELS["rate"]),
    ),
    of_sum("items that are counts", of_counts, COUNTS, plain=(of_counts, AS_FLOATS)),
    of_sum("items with a date", of_date, DATED, plain=(of_days, OF_DAYS)),
    Pair(
        "items with a field that may be None",
        lambda p: dg.map_sum(of_weights, WITH_WEIGHTS, p) + dg.map_sum(term, WITHOUT, p),
        lambda p: dg.map_sum(of_optional, WEIGHTED, p),
        X,
        (of_optional, WEIGHTED[0], X),
        rounding=ROUNDING,
    ),
    Pair(
        "items with the name of a loss",
        lambda p: dg.map_sum(term, SERIES[1::2], p) + dg.map_sum(of_soft, SERIES[::2], p),
        lambda p: dg.map_sum(by_loss, WITH_LOSS, p),
        X,
        (by_loss, WITH_LOSS[0], X),
        rounding=ROUNDING,
    ),
    of_sum("items with missing numbers", of_present, MISSING, plain=(term, PRESENT)),
    of_sum(
        "items of many lengths, with a label", of_labelled_run, LABELLED_RUNS, plain=(of_run, RUNS)
    ),
    of_sum("records of a structured array", of_record, list(RECORDS), plain=(of_point, POINTS)),
    Pair(
        "a list that a reduce_sum makes an array",
        lambda p: dg.reduce_sum(of_table, TABLE, p),
        lambda p: dg.reduce_sum(of_table, POINTS, p),
        X,
        (of_table, POINTS, X),
        rounding=ROUNDING,
    ),
]
