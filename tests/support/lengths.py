"""Which rows of a table a test always runs for, and for which only at length."""

import pytest


def in_short(arguments, rows, *short, **how):
    """Runs a test for all rows of a table; those that are not named here are marked ``long``.

    Where ``arguments`` are several, so are the values in a row; ``how`` is for ``parametrize``.
    """
    unknown = set(short) - set(rows)
    assert not unknown, unknown
    cases = [
        pytest.param(
            *(row if isinstance(arguments, tuple) else [row]),
            marks=[pytest.mark.long] * (row not in short),
        )
        for row in rows
    ]
    return pytest.mark.parametrize(arguments, cases, **how)
