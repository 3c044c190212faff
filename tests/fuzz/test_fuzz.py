"""The fuzzers find nothing in a few programs, nor at length in many; their driver tells what is."""

import pathlib
import runpy
import subprocess
import sys

import fuzz_derivatives
import fuzz_programs
import fuzz_sums
import pytest
from fuzzers import FUZZERS, run, seeds

COMPILED = ("compiled", "tangent compiled", "Hessian-vector product compiled")
FOLDER = str(pathlib.Path(__file__).parent)
ENOUGH = {  # programs in short and at length; of what there must be enough, what it is a part of
    "programs": (60, 800, lambda n: n["compared"] > 0.98 * n.total()),
    "derivatives": (
        6,
        100,
        lambda n: (
            n["tangents compared"] > 0.7 * n["tangents not recorded"]
            and n["gradient compared"] > 0.15 * n["gradient not recorded"]
        ),
    ),
    "loops": (
        15,
        200,
        lambda n: (
            n["0 deep"] + n["not recorded"] < n["1 deep"] + n["2 deep"] + n["3 deep"]
            and n["batches 0 deep"] < n["batches 1 deep"] + n["batches 2 deep"]
        ),
    ),
    "sizes": (8, 50, lambda n: 2 * n["shared"] > n["written"]),
    "items": (12, 150, lambda n: n["compared"] > 0.9 * n.total()),
    "references": (20, 300, lambda n: 70 * n["changes"] > 4 * n["calls"]),
    "objectives": (30, 500, lambda n: min(map(n.__getitem__, COMPILED)) > 0.28 * n.total()),
    "sums": (10, 300, lambda n: True),
    "machine": (20, 5000, lambda n: n["compared"] + n["same bits"] > n["unwritable"]),
}


def require_right(name, count, is_enough):
    wrong = []
    found = run(name, 20, count, wrong.append)
    assert not wrong
    assert is_enough(found.counts), found.counts


@pytest.mark.parametrize("name", ENOUGH)
def test_no_program_is_wrong(name):
    count, _, is_enough = ENOUGH[name]
    require_right(name, count, is_enough)


@pytest.mark.long
@pytest.mark.parametrize("name", ENOUGH)
def test_no_program_is_wrong_at_length(name):
    _, count, is_enough = ENOUGH[name]
    require_right(name, count, is_enough)


@pytest.mark.parametrize(("kind", "seed"), [("tangents", 150116), ("gradient", 1130)])
def test_orders_in_memory_that_were_not_the_tapes(kind, seed):
    assert fuzz_derivatives.differences_of(seed, kind, "one") == 0


@pytest.mark.parametrize("seed", [776354507, 2083950923])
def test_objectives_that_had_other_bits(seed):
    """Signs of zeros of an entry's cotangent; a view with an odd stride."""
    found = run("objectives", seed, 1)
    assert not found.wrong
    assert found.counts["compiled"] == 1


def driven(monkeypatch, *words):
    """Its exit code."""
    monkeypatch.setattr(sys, "argv", ["fuzz", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(FOLDER, run_name="__main__")
    return ended.value.code


def test_the_driver_tells_the_seed_that_replays_what_is_wrong(monkeypatch, capsys):
    wrong = seeds(5, 4)[2]
    monkeypatch.setattr(
        fuzz_sums, "differences", lambda seed, counts: ["other bits"] * (seed == wrong)
    )
    monkeypatch.setattr(fuzz_programs, "differences", lambda seed, counts: [] * (1 // (seed == 5)))
    assert driven(monkeypatch, "--seed", "5", "--programs", "4", "sums") == 1
    out = capsys.readouterr().out
    assert f"sums, --seed {wrong} --programs 1: other bits\nsums: 4 programs, 0.0 s" in out
    assert f"python tests/fuzz --seed {wrong} --programs 1 sums" in out
    assert driven(monkeypatch, "--seed", str(wrong), "--programs", "1", "sums") == 1
    assert driven(monkeypatch, "--seed", "5", "--programs", "1", "programs") == 0
    assert driven(monkeypatch, "--programs", "2", "programs") == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert driven(monkeypatch, "graph") == 2
    assert "no fuzzer is called graph" in capsys.readouterr().err


@pytest.mark.long
def test_the_driver_runs_all():
    """In a process of its own, which ends with the places that it makes."""
    done = subprocess.run(
        [sys.executable, FOLDER, "--programs", "3"], check=True, capture_output=True, text=True
    )
    assert all([f"{name}: 3 programs" in done.stdout for name in FUZZERS])
