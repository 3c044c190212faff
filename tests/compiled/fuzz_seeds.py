"""The loops of the fuzzers: one seed after another, for some minutes or so many."""

import argparse
import time


def fuzz(text, differences, counts):
    """Runs ``differences(seed, counts)``, a list of what differs, and prints it; exits 1 if any."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    end = time.monotonic() + 60.0 * given.minutes
    seed, wrong = given.seed, 0
    while time.monotonic() < end:
        found = differences(seed, counts)
        wrong += bool(found)
        for what in found:
            print(f"seed {seed}: {what}", flush=True)
        seed += 1
    print(f"{seed - given.seed} seeds, of which {wrong} differ: {counts}")
    raise SystemExit(wrong > 0)


def assert_none_differ(differences, first, count, *args):
    """Asserts that no one of so many seeds differs, and names those that do; returns what each
    found."""
    found = [differences(seed, *args) for seed in range(first, first + count)]
    assert not any(found), [first + n for n, each in enumerate(found) if each]
    return found
