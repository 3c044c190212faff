"""Calls of ours and of JAX's: values, both modes and second derivatives, alike to 1e-10."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from sweep import drawn, in_kind_of, pulled

from daskgrad.backends.autograd import linearize, trace

TOLERANCE = 1e-10
STAGES = ("value", "derivative", "second")
NOT_TAKEN = (AttributeError, TypeError, ValueError, NotImplementedError, IndexError)


class Differs(NamedTuple):
    """From which stage on calls are not as in JAX ("call": it takes none), and why.

    ``calls`` is a pattern that is looked for in the names of calls.
    """

    stage: str
    why: str
    calls: str = ""


@contextlib.contextmanager
def in_double_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    if "optional" not in request.config.getoption("markexpr"):
        pytest.skip("takes minutes: run with -m optional")
    jax = pytest.importorskip("jax", reason="values and derivatives are compared with JAX's")
    quick = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)  # compiling takes most of the time
    with jax.enable_x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", quick)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def is_taken(call: Callable, arrays: Sequence[Any]) -> bool:
    try:
        call(*arrays)
    except NOT_TAKEN:
        return False
    return True


def compare(
    name: str,
    ours: Callable[..., list[Any]],
    jaxs: Callable[..., list[Any]],
    arrays: Sequence[Any],
    stages: Sequence[str] = STAGES,
    differs: Differs | None = None,
) -> None:
    """Asserts that both are alike, stage by stage; and that what is said to differ does."""
    like = ours(*arrays)
    found, expected = (stages_of(fun, arrays, like, len(name)) for fun in (ours, jaxs))
    for stage in stages:
        told = difference(found[stage], expected[stage])
        if differs is not None and stage == differs.stage:
            assert told, f"{stage} of {name} is as JAX's: it needs no reason"
            return
        assert not told, f"{stage} of {name}: {told}"
    assert differs is None, f"{name} is as JAX's: it needs no reason"


def stages_of(
    fun: Callable[..., list[Any]], arrays: Sequence[Any], like: Sequence[Any], seed: int
) -> dict[str, Callable[[], list[Any]]]:
    """Value, derivatives in both modes, and second derivatives; ``like`` is the value."""
    random = np.random.default_rng(seed)
    gs, tangents = ([drawn(each, random) for each in some] for some in (like, arrays))

    def gradient(*xs: Any) -> list[Any]:
        _, tape = trace(fun, xs)
        return [in_kind_of(x, c) for x, c in zip(xs, tape.pull(gs), strict=True)]

    return {
        "value": lambda: fun(*arrays),
        "derivative": lambda: [*pulled(fun, arrays, gs), *linearize(fun, arrays)[1](tangents)],
        "second": lambda: linearize(gradient, arrays)[1](tangents),
    }


def difference(ours: Callable, jaxs: Callable) -> str:
    """How they differ; nothing if they do not."""
    found = ours()
    try:
        expected = jaxs()
    except Exception as error:  # JAX has none
        return repr(error)
    if len(found) != len(expected) or any(map(are_apart, found, expected)):
        return f"{found}, not {expected}"
    return ""


def are_apart(found: Any, expected: Any) -> bool:
    if np.shape(found) != np.shape(expected):
        return True
    sizes = np.abs(np.asarray(expected))
    size = np.max(sizes[np.isfinite(sizes)], initial=0.0)  # what is infinite has to be the same
    with np.errstate(all="ignore"):
        gaps = np.where(np.equal(found, expected), 0.0, np.abs(np.subtract(found, expected)))
    return not np.max(gaps, initial=0.0) <= TOLERANCE * (1e-3 + size)
