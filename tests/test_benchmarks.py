"""The benchmarks run, in a tiny configuration each, and write what they promise.

Their times mean nothing here, so neither their claims nor any ratio is asserted; counts are.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(name, results, *options):
    """Runs a benchmark with warnings as errors; returns what it printed and its JSON."""
    script = [sys.executable, "-W", "error", ROOT / "benchmarks" / f"{name}.py"]
    ran = subprocess.run(
        [*script, "--quick", "--rounds", "1", "--results", results, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    page = (results / f"{name}.html").read_text()
    assert "Bokeh" in page
    content = json.loads((results / f"{name}.json").read_text())
    require_statement(name, content)
    assert all(claim["text"] in ran.stdout for claim in content["claims"])
    return ran.stdout, content


def require_statement(name, content):
    """What every JSON file states."""
    assert content["benchmark"] == name
    assert content["settings"] == {"quick": True, "rounds": 1}
    stated = {"cpu", "cores", "python", "numpy", "dask", "distributed", "autograd", "daskgrad"}
    assert stated | {"BLAS threads", "malloc"} <= set(content["machine"])
    assert content["claims"]
    assert all(set(claim) == {"text", "found", "holds"} for claim in content["claims"])


def test_the_sum_of_models_has_all_its_peers(tmp_path):
    printed, content = run("sum_of_models", tmp_path, "--items", "16", "--markdown")
    assert "| ---" in printed
    assert content["items"] == 16
    peers = {peer["peer"] for peer in content["peers"]}
    assert len(peers) == 10
    assert {"serial loop", "joblib", "ProcessPoolExecutor", "daskgrad, shards"} <= peers
    for peer in content["peers"]:
        assert {"seconds", "speed-up", "speed-up, equal malloc", "all seconds"} <= set(peer)


def test_chunking_measures_every_cell_and_compares_with_an_earlier_run(tmp_path):
    expected = {(m, w, c) for m in ("resident", "graph") for w in (1, 2) for c in (1, 2)}
    cells = [{"mode": m, "workers": w, "chunks": c, "seconds": 1e6} for m, w, c in expected]
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"cells": cells}))
    printed, content = run("chunking", tmp_path, "--items", "2", "--against", old)
    measured = {(cell["mode"], cell["workers"], cell["chunks"]) for cell in content["cells"]}
    assert measured == expected
    assert all({"seconds", "slow-down", "speed-up"} <= set(cell) for cell in content["cells"])
    ratios = printed.split(f"time over that in {old}")[1].split("\n")[2:4]
    assert [line.split() for line in ratios] == [[chunks] + ["0.000"] * 4 for chunks in "12"]


def test_latency_has_all_its_peers(tmp_path):
    _, content = run("latency", tmp_path)
    peers = {peer["peer"]: peer["calls a second"] for peer in content["peers"]}
    others = {"client.run", "actors", "client.submit", "dask.delayed"}
    assert set(peers) == {"daskgrad, shards", *others}
    assert all(calls > 0 for calls in peers.values())


def test_scaling_counts_the_clients_bytes(tmp_path):
    _, content = run("scaling", tmp_path)
    rows = {(row["workers"], row["peer"], row["numbers"]): row for row in content["measured"]}
    small = ("daskgrad", "bare handlers", "handlers with autograd")
    peers = (*[(peer, 10**2) for peer in small], ("daskgrad", 10**6))
    assert set(rows) == {(workers, *peer) for workers in (1, 2) for peer in peers}
    for (_, _, numbers), row in rows.items():
        assert row["bytes received"] >= 8 * numbers
        assert row["bytes sent"] >= 8 * numbers
        assert 0.0 < row["efficiency"] <= 1.0
        assert row["client processor seconds"] > 0.0


def test_chaos_kills_workers_and_compares_bits(tmp_path):
    _, content = run("chaos", tmp_path)
    assert content["kills"] == 3
    programs = {each["program"]: each for each in content["programs"]}
    assert set(programs) == {"graph", "pullback", "placed sum"}
    for each in programs.values():
        assert each["kills"] == each["right"] == len(each["all extra seconds"]) == 1
    assert all(claim["holds"] for claim in content["claims"])


def test_gathers_measures_time_and_memory_of_all_programs(tmp_path):
    printed, content = run("gathers", tmp_path)
    programs = {each["program"]: each for each in content["programs"]}
    assert set(programs) == {"terms", "rows", "intercepts"}
    for name, each in programs.items():
        assert name in printed
        assert each["seconds"] > 0.0
        assert each["arrays"] >= 1.0 or name == "intercepts", "a gradient is an array"
