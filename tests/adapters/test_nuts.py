"""Draws from densities, by nutpie."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = [
    pytest.mark.optional,
    pytest.mark.filterwarnings("ignore"),  # of several libraries below nutpie and ArviZ
]
pytest.importorskip("nutpie")

START = {"mean": np.zeros(2), "of": {"scale": 0.0}, "n": 3}
QUIET = {"progress_bar": False, "seed": 1}


def log_term(item, p):
    return -0.5 * np.sum((item - p["mean"]) ** 2)


def log_prior(p):
    return -0.5 * p["of"]["scale"] ** 2


DATA = list(np.random.default_rng(0).normal([1.0, -2.0], 1.0, (50, 2)))


def density(items):
    return lambda p: dg.map_sum(log_term, items, p) + dg.delayed(log_prior)(p)


def check(found):
    mean, scale = found.posterior["mean"].values, found.posterior["of.scale"].values
    assert mean.shape == (2, 300, 2)
    assert_allclose(mean.mean((0, 1)), np.mean(DATA, 0), atol=0.04)
    assert_allclose(mean.std((0, 1)), 1 / np.sqrt(50), rtol=0.2)
    assert abs(scale.mean()) < 0.2
    assert set(found.posterior.data_vars) == {"mean", "of.scale"}


def test_draws_are_those_of_the_density():
    labels = {"coords": {"axis": ["x", "y"]}, "dims": {"mean": ["axis"]}}
    options = {"draws": 300, "tune": 200, "chains": 2, **QUIET}
    found = dg.adapters.sample(density(DATA), START, **labels, **options)
    check(found)
    assert list(found.posterior["axis"].values) == ["x", "y"]


def test_the_seed_decides():
    options = {"draws": 20, "tune": 20, "chains": 2, **QUIET}
    one, other = [dg.adapters.sample(density(DATA), START, **options) for _ in range(2)]
    assert one.posterior.equals(other.posterior)


def test_chains_share_placed_items(client):
    with dg.place(DATA) as shards:
        found = dg.adapters.sample(density(shards), START, draws=300, tune=200, chains=2, **QUIET)
    check(found)


def test_the_error_of_a_model_ends_the_sampling_and_is_raised(capfd):
    calls = []

    def broken(p):
        calls.append(None)
        if len(calls) > 100:
            raise ZeroDivisionError("broken")
        return -(p**2)

    with pytest.raises(ZeroDivisionError, match="broken") as caught:
        dg.adapters.sample(lambda p: dg.delayed(broken, compile=False)(p), 0.0, **QUIET)
    assert "model 'broken'" in "".join(caught.value.__notes__)
    assert "panicked" not in capfd.readouterr().err


def test_an_error_at_the_start_is_raised_too():
    def broken(p):
        raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        dg.adapters.sample(lambda p: dg.delayed(broken)(p), 0.0, **QUIET)


def test_values_that_are_not_finite_are_divergences():
    def half(p):
        return np.where(p > 0.0, -(p**2), -np.inf)

    found = dg.adapters.sample(
        lambda p: dg.delayed(half)(p), 1.0, draws=200, tune=100, chains=1, **QUIET
    )
    assert np.all(found.posterior["x"].values > 0.0)


def test_chains_start_near_the_start():
    points = []

    def far(p):
        points.append(float(dg.value(p)))
        return -0.5 * (p - 1e4) ** 2

    model = dg.delayed(far, compile=False)
    dg.adapters.sample(model, 1e4, draws=5, tune=5, chains=2, **QUIET)
    assert abs(points[1] - 1e4) <= 1.0
    assert len(set(points[:3])) > 1


def half_line(p):
    return np.sum(np.log(np.sqrt(p["rate"] - 5.0))) - 0.5 * p["rate"] - p["of"] ** 2


def test_a_start_that_is_not_finite_is_an_error_before_any_chain_starts():
    told = r"'half_line' is nan at the start, and .* with respect to 'rate'; .*debug_nans"
    with pytest.raises(ValueError, match=told):
        dg.adapters.sample(dg.delayed(half_line), {"rate": 1.0, "of": 0.0}, **QUIET)


def test_a_start_at_an_edge_is_one():
    start = {"rate": 5.01, "of": 0.0}  # most points within 1 are beyond
    options = {"draws": 20, "tune": 20, "chains": 4, **QUIET}
    found = dg.adapters.sample(dg.delayed(half_line), start, **options)
    assert np.all(found.posterior["rate"].values > 5.0)


def test_a_setting_that_nutpie_lacks_is_named():
    with pytest.raises(TypeError, match=r"no setting 'progress'; is 'progress_.*' meant"):
        dg.adapters.sample(density(DATA), START, progress=False)
