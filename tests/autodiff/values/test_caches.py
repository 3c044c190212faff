import pytest

from daskgrad.autodiff.values.carriers import kept_or_made


def test_the_latest_entries_are_kept():
    kept = {}
    for number in range(20):
        assert kept_or_made(kept, number, lambda number=number: str(number), 5) == str(number)
    assert kept == {n: str(n) for n in range(15, 20)}
    assert kept_or_made(kept, 16, lambda: pytest.fail("it is there"), 5) == "16"
