import pytest

from daskgrad.values.caches import kept_or_made


def test_the_latest_entries_are_kept():
    kept = {}
    for number in range(20):
        assert kept_or_made(kept, number, lambda number=number: str(number), 5) == str(number)
    assert kept == {n: str(n) for n in range(15, 20)}
    assert kept_or_made(kept, 16, lambda: pytest.fail("it is there"), 5) == "16"


def test_a_full_cache_is_seldom_copied():
    class Keys(dict):
        seen = 0

        def __iter__(self):
            for key in super().__iter__():
                self.seen += 1
                yield key

    kept = Keys()
    for number in range(5000):
        kept_or_made(kept, number, lambda number=number: str(number), 1000)
        assert len(kept) <= 1000
    assert kept.seen < 10 * 5000
    assert list(kept) == list(range(5000 - len(kept), 5000))
