"""Which rows of a table a test always runs for, and for which only at length."""

import pytest


def in_short(argument, rows, *short):
    """Runs a test for all rows of a table; those that are not named here are marked ``long``."""
    unknown = set(short) - set(rows)
    assert not unknown, unknown
    cases = [pytest.param(row, marks=[pytest.mark.long] * (row not in short)) for row in rows]
    return pytest.mark.parametrize(argument, cases)
