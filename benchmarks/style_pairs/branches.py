"""Branches, checks and messages; the measured calls reach few of them."""

import contextlib
import enum
import warnings
from types import SimpleNamespace

import numpy as np

import daskgrad as dg
from style_pairs.pairs import SERIES, T, Y, of_model, scaled

TWELVE = np.arange(12.0)
DISTANCES = np.abs(np.subtract.outer(TWELVE, TWELVE))
FIELD = SERIES[0][1][:12]


# ------------------------------------------------------------------------------------------ checks


def with_asserts(p, t, y):
    assert p.shape == (2,), f"two parameters, not {p.shape}"
    assert t.ndim == 1
    assert t.shape == y.shape
    assert np.all(np.isfinite(y)), "data must be finite"
    total = np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)
    assert total >= 0.0
    return total


def require(name, array, count):
    if len(array) != count:
        raise ValueError(f"{name!r} has {len(array)} entries and not {count}: {array[:3]} ...")
    return array


def with_messages(p, t, y):
    p, t = require("p", p, 2), require("t", t, len(y))
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def weighted(p, t, y, weight):
    return np.sum(weight * (y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_instances(p, t, y, weights=None):
    if isinstance(p, dict):
        p = np.array([p["level"], p["rate"]])
    if isinstance(t, list | tuple):
        t = np.asarray(t)
    if weights is None:
        weights = 1.0
    elif callable(weights):
        weights = weights(t)
    return np.sum(weights * (y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_attributes(p, t, y):
    if not hasattr(t, "shape"):
        t = np.asarray(t)
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_types(p, t, y):
    if type(t) == list:  # noqa: E721
        t = np.array(t)
    if type(p) is tuple:
        p = np.array(p)
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


# ----------------------------------------------------------------------------------------- choices


def of_case(p, t, y, loss):
    r = y - p[0] * np.exp(-p[1] * t)
    match loss:
        case {"kind": "square", "scale": scale}:
            return np.sum((r / scale) ** 2)
        case {"kind": "absolute"}:
            return np.sum(np.abs(r))
        case _:
            raise ValueError(loss)


class Loss(enum.Enum):
    SQUARE = "square"
    ABSOLUTE = "absolute"


def of_member(p, t, y, loss):
    r = y - p[0] * np.exp(-p[1] * t)
    if loss is Loss.SQUARE:
        return np.sum(r**2)
    if loss == Loss.ABSOLUTE:
        return np.sum(np.abs(r))
    raise ValueError(loss.value)


def of_text(p, t, y, loss="square"):
    r = y - p[0] * np.exp(-p[1] * t)
    if loss.lower().startswith("sq"):
        return np.sum(r**2)
    return np.sum(np.abs(r))


def early(p, t, y):
    if np.any(~np.isfinite(dg.value(p))):
        return np.inf
    if p[0] <= 0.0 or p[1] <= 0.0:
        return 1e10
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def until_it_converges(p):
    z, steps = 1.0, 0
    while True:
        change = (z**3 - p[0] * z - p[1]) / (3.0 * z**2 - p[0])
        z, steps = z - change, steps + 1
        if abs(change) < 1e-10 or steps > 30:
            break
    return (z - 2.0) ** 2


def in_six_steps(p):
    z = 1.0
    for _ in range(6):
        z = z - (z**3 - p[0] * z - p[1]) / (3.0 * z**2 - p[0])
    return (z - 2.0) ** 2


# ---------------------------------------------------------------------------------------- messages


def with_warning(p, t, y):
    if p[1] < 0.0:
        warnings.warn("the rate is negative", RuntimeWarning, stacklevel=2)
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


VERBOSE = False


def with_print(p, t, y):
    total = np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)
    if VERBOSE:
        print(f"loss {total:.3g} at {p}")
    return total


settings = SimpleNamespace(scale=0.1, robust=False, verbose=False)


def of_settings(p, t, y):
    r = (y - p[0] * np.exp(-p[1] * t)) / settings.scale
    if settings.verbose:
        print("p =", p)
    if settings.robust:
        return np.sum(np.sqrt(1.0 + r**2))
    return np.sum(r**2)


class BadCurve(Exception):
    """The models raise it, and no library does."""


def with_exception(p, t, y):
    if p[1] > 100.0:
        raise BadCurve(f"the rate is {p[1]}")
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


# ------------------------------------------------------------------------- exceptions and contexts


def covariance(p, distances):
    return np.exp(p[0]) * np.exp(-distances / np.exp(p[1])) + 0.1 * np.eye(12)


def of_field(p, distances, y):
    root = np.linalg.cholesky(covariance(p, distances))
    white = np.linalg.solve(root, y)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diag(root)))


def unless_it_fails(p, distances, y):
    try:
        root = np.linalg.cholesky(covariance(p, distances))
    except np.linalg.LinAlgError:
        return np.inf
    white = np.linalg.solve(root, y)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diag(root)))


OPTIONS = {"scale": 0.1}


def of_missing_key(p, t, y, options):
    try:
        weight = options["weight"]
    except KeyError:
        weight = 1.0
    scale = getattr(options, "scale", None) or options.get("scale", 1.0)
    return np.sum(weight * ((y - p[0] * np.exp(-p[1] * t)) / scale) ** 2)


def of_weight(p, t, y):
    return np.sum(1.0 * ((y - p[0] * np.exp(-p[1] * t)) / 0.1) ** 2)


def with_errstate(p, t, y):
    with np.errstate(over="ignore", invalid="ignore"):
        curve = p[0] * np.exp(-p[1] * t)
    return np.sum((y - curve) ** 2)


@contextlib.contextmanager
def stage(name):
    try:
        yield
    except FloatingPointError as error:
        raise BadCurve(f"in {name}") from error


def in_stages(p, t, y):
    with stage("decay"):
        curve = p[0] * np.exp(-p[1] * t)
    return np.sum((y - curve) ** 2)


SQUARE = {"kind": "square", "scale": 0.1}
SCALED = (scaled, T, Y, 0.1)
OF_FIELD = dict(plain=(of_field, DISTANCES, FIELD), point=np.array([0.1, 0.4]))

PAIRS = [
    of_model("asserts", with_asserts, T, Y),
    of_model("errors with messages", with_messages, T, Y),
    of_model("isinstance and callable", of_instances, T, Y, plain=(weighted, T, Y, 1.0)),
    of_model("hasattr", of_attributes, T, Y),
    of_model("types that are compared", of_types, T, Y),
    of_model("match of a dict", of_case, T, Y, SQUARE, plain=SCALED),
    of_model("a member of an enumeration", of_member, T, Y, Loss.SQUARE),
    of_model("a choice by text", of_text, T, Y, "Square"),
    of_model("early returns", early, T, Y),
    of_model(
        "Newton's steps until they are small",
        until_it_converges,
        plain=(in_six_steps,),
        point=np.array([1.0, 1.5]),
        rounding=1e-8,
    ),
    of_model("a warning", with_warning, T, Y),
    of_model("a print if it is wanted", with_print, T, Y),
    of_model("settings of a module, with a print", of_settings, T, Y, plain=SCALED),
    of_model("an exception of one's own", with_exception, T, Y),
    of_model("except LinAlgError", unless_it_fails, DISTANCES, FIELD, **OF_FIELD),
    of_model("except KeyError", of_missing_key, T, Y, OPTIONS, plain=(of_weight, T, Y)),
    of_model("np.errstate", with_errstate, T, Y),
    of_model("a context manager of one's own", in_stages, T, Y),
]
