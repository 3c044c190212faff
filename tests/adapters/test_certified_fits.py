"""NIST's certified regressions from both starts, as the example fits them."""

import certified_fits
import pytest

SETS = certified_fits.read()
SHORT = {("BoxBOD", 0), ("DanWood", 1), ("Gauss1", 0), ("Lanczos3", 1), ("Nelson", 1)}
CASES = [
    pytest.param(name, start, marks=() if (name, start) in SHORT else pytest.mark.long)
    for name in SETS
    for start in (0, 1)
]


def test_all_of_nists_nonlinear_regressions_are_fitted():
    assert len(CASES) == 54
    assert SETS.keys() == certified_fits.MODELS.keys()


@pytest.mark.parametrize(("name", "start"), CASES)
def test_estimates_and_deviations_are_the_certified_ones(name, start, synchronous):
    fit = certified_fits.fit(SETS[name], start)
    assert min(fit.estimates, fit.deviations) >= certified_fits.WANTED
