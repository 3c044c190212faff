"""The page of coverage is up to date, and every function is in one of its lists."""

import pathlib
import re

import coverage_page
import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "coverage.md"


@pytest.mark.optional
def test_the_page_of_coverage_is_made_of_the_table():
    pytest.importorskip("jax", reason="needs JAX for a column")
    assert PAGE.read_text() == coverage_page.page() + "\n", "run coverage_page.py again"


def test_few_functions_are_refused():
    differentiated, refused = map(
        int, re.findall(r"(\d+) (?:functions|are refused)", PAGE.read_text())
    )
    assert differentiated >= 350
    assert refused <= 40


def test_the_page_is_of_what_numpy_has():
    """A function that NumPy drops, or that gets a rule, leaves these lists."""
    functions = [coverage_page.functions_of(module) for module in coverage_page.MODULES]
    names = {name for each in functions for names in each.values() for name in names}
    assert coverage_page.NOTHING - names == set()
