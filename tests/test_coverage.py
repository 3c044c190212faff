"""The page of coverage is up to date, and every function is in one of its lists."""

import importlib
import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGE = DOCS / "coverage.md"


@pytest.fixture
def coverage_page(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("coverage_page")


@pytest.mark.optional
def test_the_page_of_coverage_is_made_of_the_table(coverage_page):
    pytest.importorskip("jax", reason="needs JAX for a column")
    assert PAGE.read_text() == coverage_page.page() + "\n", "run docs/coverage_page.py again"


def test_few_functions_are_refused():
    differentiated, refused = map(
        int, re.findall(r"(\d+) (?:functions|are refused)", PAGE.read_text())
    )
    assert differentiated >= 350
    assert refused <= 40


def test_the_page_is_of_what_numpy_has(coverage_page):
    """A function that NumPy drops, or that gets a rule, leaves these lists."""
    functions = [coverage_page.functions_of(module) for module in coverage_page.MODULES]
    names = {name for members in functions for names in members.values() for name in names}
    assert coverage_page.NOTHING - names == set()
