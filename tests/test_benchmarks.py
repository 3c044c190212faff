"""The benchmarks run, in a tiny configuration each, and write what they promise.

Their times mean nothing here, so neither their claims nor any ratio is asserted; counts are.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import SLOW

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
JAX_SUMS = ROOT / "benchmarks" / "jax_sums.py"


def run(name, results, *options):
    """Runs a benchmark with warnings as errors; returns what it printed and its JSON."""
    script = [sys.executable, "-W", "error", ROOT / "benchmarks" / f"{name}.py"]
    ran = subprocess.run(
        [*script, "--quick", "--rounds", "1", "--results", results, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100 * SLOW,
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
    assert len(content["small"]) == 5
    assert all(len(seconds) == 1 for seconds in content["small"].values())


def test_compiled_models_have_all_their_peers():
    script = [sys.executable, "-W", "error", ROOT / "benchmarks" / "compiled.py", "--quick"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        script, env=environment, capture_output=True, text=True, timeout=100 * SLOW
    )
    assert ran.returncode == 0, ran.stderr
    for column in ("compiled", "tape", "autograd", "by hand"):
        assert column in ran.stdout


def test_rules_have_a_row_for_each_function():
    script = [sys.executable, ROOT / "benchmarks" / "rules.py", "--quick", "exp", "lstsq", "pinv"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        script, env=environment, capture_output=True, text=True, timeout=100 * SLOW
    )
    assert ran.returncode == 0, ran.stderr
    assert all(f"\n{name} " in ran.stdout for name in ("exp", "pinv"))
    assert "without a reason" in ran.stdout


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


def test_graphs_have_all_their_peers_and_two_tasks_a_node(tmp_path):
    _, content = run("graphs", tmp_path)
    rows = {(row["shape"], row["nodes"]): row for row in content["programs"]}
    sizes = [(shape, nodes) for shape in ("chain", "fan", "layers") for nodes in (10, 100)]
    assert set(rows) == {("alone", 1), ("chain", 1), *sizes}
    peers = {"daskgrad, in line", "daskgrad, threads", "autograd", "dask.delayed"}
    for row in rows.values():
        assert set(row["microseconds a node"]) == set(row["ratio to autograd"]) == peers
        assert row["ratio to autograd"]["autograd"] == 1.0
    assert rows["chain", 100]["tasks a node"] == 2.01


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


def test_slices_has_every_cut_in_line_and_placed(tmp_path):
    _, content = run("slices", tmp_path)
    names = {entry["program"] for entry in content["programs"]}
    cuts = ("auto", "1 slices", "4 slices")
    cells = {f"{mode}, 10000 rows, {cut}" for mode in ("in line", "placed") for cut in cuts}
    peers = ("autograd", "placed", "half of autograd and an empty call")
    steps = {f"leapfrog, 10000 rows, {peer}" for peer in peers}
    assert cells | steps | {"autograd, 10000 rows"} <= names
    assert {f"{mode}, 10000 rows, 16 slices" for mode in ("in line", "on one worker")} <= names
    assert all(entry["processor seconds"] > 0.0 for entry in content["programs"])
    assert len(content["claims"]) == 6


@pytest.mark.optional
def test_sums_of_jax_models_have_all_their_peers(tmp_path):
    pytest.importorskip("jax", reason='needs pip install "daskgrad[jax]"')
    _, content = run("jax_sums", tmp_path)
    peers = {(peer["items"], peer["peer"]) for peer in content["peers"]}
    rows = {("rows", name) for name in ("daskgrad", "calls", "lax.map")}
    assert peers == rows | {("ragged", "daskgrad"), ("ragged", "calls")}


def test_without_jax_its_benchmark_says_so(tmp_path):
    hidden = "import importlib.util as u, runpy, sys; u.find_spec = lambda name: None; "
    script = f"sys.argv[1:] = []; runpy.run_path({str(JAX_SUMS)!r}, run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-c", hidden + script],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{JAX_SUMS.parent}"},
        capture_output=True,
        text=True,
        timeout=100 * SLOW,
    )
    assert ran.returncode == 0, ran.stderr
    assert "JAX is not installed" in ran.stdout


def test_chaos_kills_workers_and_compares_bits(tmp_path):
    _, content = run("chaos", tmp_path)
    assert content["kills"] == 5
    programs = {entry["program"]: entry for entry in content["programs"]}
    assert set(programs) == {"graph", "pullback", "loop", "domain", "placed sum"}
    for entry in programs.values():
        assert entry["kills"] == entry["right"] == len(entry["all extra seconds"]) == 1
    assert all(claim["holds"] for claim in content["claims"])


def test_placing_has_all_kinds_of_items_and_its_peers(tmp_path):
    _, content = run("placing", tmp_path)
    names = {row["program"] for row in content["measured"]}
    kinds = ("floats", "pairs", "rows", "arrays")
    placed = {f"{verb} {kind}" for verb in ("pickling", "placing") for kind in kinds}
    placed.add("scattering rows")
    sums = {"serial loop", "items of a variable", "zipped with placed numbers"}
    assert names == placed | sums
    assert all(row["seconds"] > 0.0 for row in content["measured"])
    assert len(content["claims"]) == 6


def test_minibatches_compares_clusters_with_one_process(tmp_path):
    _, content = run("minibatches", tmp_path)
    names = {"in line", "threads", "one worker", "two workers"}
    assert all(names <= set(entry) for entry in content["programs"])
    assert "two workers, matrix sent" in content["programs"][0]
    assert len(content["claims"]) == 3


def test_attached_compares_what_stays_with_what_is_sent(tmp_path):
    _, content = run("attached", tmp_path)
    names = {"one process", "two workers, sent", "two workers, attached"}
    assert all(names <= set(entry) for entry in content["programs"])
    assert len(content["claims"]) == 1


def test_gathers_measures_time_and_memory_of_all_programs(tmp_path):
    printed, content = run("gathers", tmp_path)
    programs = {entry["program"]: entry for entry in content["programs"]}
    assert set(programs) == {"terms", "terms as rows", "rows", "intercepts"}
    for name, entry in programs.items():
        assert name in printed
        assert entry["seconds"] > 0.0
        is_array = name not in ("intercepts", "terms as rows")
        assert entry["arrays"] >= 1.0 or not is_array, "a gradient is an array"


def test_threads_compares_the_default_with_both_ways(tmp_path):
    """It fails where the bits differ."""
    _, content = run("threads", tmp_path)
    for row in content["sums"]:
        assert min(row[way] for way in ("in line", "threads", "default")) > 0.0
    assert len(content["claims"]) == len(content["sums"]) == 2


def test_steps_with_rows_have_their_peers(tmp_path):
    _, content = run("rows", tmp_path)
    programs = {(entry["program"], entry["n"]) for entry in content["steps"]}
    assert len(programs) == 10
    for entry in content["steps"]:
        assert "daskgrad" in entry["seconds"]
        assert 0 < entry["nbytes"] < 10**7


def test_loops_compares_ways_to_keep_states(tmp_path):
    _, content = run("loops", tmp_path)
    runs = {row["name"]: row["runs"] for row in content["loops"]}
    assert {"every tape", "every state", "auto", "10 MB"} < runs.keys()
    assert runs["every state"] == 1.0 < runs["32 states"] < runs["12 states"]


def test_domains_compares_cuts_and_counts_bytes(tmp_path):
    _, content = run("domains", tmp_path)
    assert {row["where"] for row in content["domains"]} == {"one domain", "threads", "processes"}
    assert all(claim["holds"] for claim in content["claims"])
