import pytest

from daskgrad.values.caches import drop_oldest, kept_or_made


def test_the_latest_entries_are_kept():
    kept = {}
    for number in range(20):
        assert kept_or_made(kept, number, lambda number=number: str(number), 5) == str(number)
    assert kept == {n: str(n) for n in range(15, 20)}
    assert kept_or_made(kept, 16, lambda: pytest.fail("it is there"), 5) == "16"


def test_an_entry_too_many_costs_no_copy_of_the_others():
    class Keys(dict):
        seen = 0

        def __iter__(self):
            for key in super().__iter__():
                self.seen += 1
                yield key

    kept = Keys.fromkeys(range(1001))
    drop_oldest(kept, 1000)
    assert (len(kept), 0 in kept, kept.seen) == (1000, False, 1)
