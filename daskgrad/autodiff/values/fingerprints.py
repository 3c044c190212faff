"""Fingerprints: a few numbers by which a value is recognised.

A value and its pullback belong together. Dask may run a forward task twice (its worker died, or its
tape stayed behind), and a model that draws random numbers then returns another value. A fingerprint
has a few numbers for each leaf, few enough to travel with each cotangent.
"""

import functools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.values.trees import BOXES

SAMPLES = 64

Fingerprint = tuple[Any, ...]


def fingerprint(leaves: Sequence[Any]) -> Fingerprint:
    """A few numbers for every leaf: norm and up to 64 strided entries, or a checksum."""
    return tuple([_leaf_print(leaf) for leaf in leaves])


def agree(first: Fingerprint, second: Fingerprint) -> bool:
    """Whether two fingerprints are of one value, up to rounding between machines.

    Floating-point leaves agree in norm and sampled entries, to the square root of their dtype's
    epsilon (NaN equals NaN, an infinity equals itself); all other leaves agree exactly.
    A change that touches neither the norm nor a sampled entry is not found.
    """
    return len(first) == len(second) and all(map(_leaves_agree, first, second))


def _leaf_print(leaf: Any) -> Any:
    if type(leaf) is float or type(leaf) is np.float64:
        return float(leaf)
    if type(leaf) in BOXES:
        return None
    if not isinstance(leaf, np.ndarray | np.generic | complex):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in "fc":
        return (array.shape, str(array.dtype), zlib.crc32(np.ascontiguousarray(array).data))
    flat = array.reshape(-1)
    sample = flat[:: max(1, math.ceil(flat.size / SAMPLES))].copy()
    return (array.shape, array.dtype.str, norm(flat), sample)


def norm(vector: np.ndarray) -> float:
    """The Euclidean norm, also where squares overflow or vanish (a likelihood of exp(-500))."""
    is_real = vector.dtype.kind == "f"
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norm = float(np.sqrt(vector.dot(vector)) if is_real else np.linalg.norm(vector))
        if least_exact(vector.dtype) < norm < np.inf:
            return norm
        sizes = np.abs(vector)
        largest = np.max(sizes, initial=0.0)
        if largest == 0.0 or not np.isfinite(largest):
            return norm
        return float(largest) * float(np.linalg.norm(sizes / largest))


@functools.cache
def least_exact(dtype: np.dtype) -> float:
    """The least norm that has all digits as the root of a square."""
    info = np.finfo(dtype)
    return float(np.sqrt(info.tiny) / info.eps)


def _leaves_agree(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        if first == second:
            return True
        return _close(first, second, max(abs(first), abs(second)), np.float64)
    if not (isinstance(first, tuple) and len(first) == 4):
        return type(first) is type(second) and bool(first == second)
    if not (isinstance(second, tuple) and first[:2] == second[:2]):
        return False
    (shape, dtype, norm, sample), (_, _, other_norm, other_sample) = first, second
    if norm == other_norm and sample.tobytes() == other_sample.tobytes():  # nearly always
        return True
    scale = np.sqrt(sample.size / max(1, math.prod(shape))) * max(norm, other_norm)
    return _close(norm, other_norm, max(norm, other_norm), dtype) and _close(
        sample, other_sample, scale, dtype
    )


def _close(first: Any, second: Any, scale: float, dtype: Any) -> bool:
    """Whether the finite entries differ by at most sqrt(eps) times ``scale``, in norm."""
    first, second = np.atleast_1d(first), np.atleast_1d(second)
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return False
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return False
    if not np.isfinite(scale):  # a norm that is NaN or overflows says nothing about other entries
        scale = float(np.max(np.abs(first[finite]), initial=0.0))
    if scale == 0.0:
        return np.array_equal(first[finite], second[finite])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        difference = np.linalg.norm(np.abs(first[finite] - second[finite]) / scale)
    return bool(difference <= np.sqrt(np.finfo(dtype).eps))
