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


def printed_by(*arguments):
    """What Python prints, with warnings as errors."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{JAX_SUMS.parent}"},
        capture_output=True,
        text=True,
        timeout=100 * SLOW,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def run(name, results, *options):
    """What a benchmark prints, and its JSON."""
    options = ["--quick", "--rounds", "1", "--results", results, *options]
    printed = printed_by(ROOT / "benchmarks" / f"{name}.py", *options)
    assert "Bokeh" in (results / f"{name}.html").read_text()
    content = json.loads((results / f"{name}.json").read_text())
    require_statement(name, content)
    assert all(claim["text"] in printed for claim in content["claims"])
    return printed, content


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


PRINTED = {  # what a script without a page prints
    "compiled": ("compiled", "tape", "autograd", "by hand"),
    "objectives": ("\none model ", "\na method ", "\ntwenty models "),
    "styles": ("\nitems with a name ", "\nderivatives ", "the largest factor"),
    "batches": ("\ncounts ", "\nof 128 sizes ", "batches over a loop by hand"),
    "cliffs": ("balance", "own gradients", "data sets", "BLAS threads"),
    "peers": [f"W{number}, daskgrad: " for number in range(1, 6)],
    "rules": ("\nexp ", "\nlstsq ", "\npinv ", "without a reason"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_scripts_print_a_line_for_each_peer_or_function(name):
    functions = ["exp", "lstsq", "pinv"] if name == "rules" else []
    printed = printed_by(ROOT / "benchmarks" / f"{name}.py", "--quick", *functions)
    assert all(word in printed for word in PRINTED[name])
    assert "gives no answer" not in printed


VERBS, KINDS = ("pickling", "placing"), ("floats", "pairs", "rows", "arrays")
CUTS = ("auto", "1 slices", "4 slices")
OF_ITEMS = {"serial loop", "items of a variable", "zipped with placed numbers"}
ROWS = {  # a benchmark's rows, what names one, or where its columns are named, and the names
    "latency": (
        ("peers", "peer"),
        {"daskgrad, shards", "client.run", "actors", "client.submit", "dask.delayed"},
    ),
    "slices": (
        ("programs", "program"),
        {f"{mode}, 10000 rows, {cut}" for mode in ("in line", "placed") for cut in CUTS}
        | {f"leapfrog, 10000 rows, {peer}" for peer in ("autograd", "placed")}
        | {f"{mode}, 10000 rows, 16 slices" for mode in ("in line", "on one worker")},
    ),
    "placing": (
        ("measured", "program"),
        {f"{verb} {kind}" for verb in VERBS for kind in KINDS} | OF_ITEMS,
    ),
    "minibatches": (("programs",), {"in line", "threads", "one worker", "two workers"}),
    "attached": (("programs",), {"one process", "two workers, sent", "two workers, attached"}),
    "gathers": (("programs", "program"), {"terms", "terms as rows", "rows", "intercepts"}),
    "threads": (("sums",), {"in line", "threads", "default"}),
    "rows": (("steps",), {"program", "n", "seconds", "nbytes"}),
    "loops": (("loops", "name"), {"every tape", "every state", "auto", "10 MB", "12 states"}),
    "domains": (("domains", "where"), {"one domain", "threads", "processes"}),
    "jax_sums": (("peers", "peer"), {"daskgrad", "calls", "lax.map"}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.optional] * (n == "jax_sums")) for n in ROWS]
)
def test_there_is_a_row_for_each_program_and_peer(name, tmp_path):
    """Where results differ that must not, a benchmark fails."""
    if name == "jax_sums":
        pytest.importorskip("jax", reason='needs pip install "daskgrad[jax]"')
    (section, *column), names = ROWS[name]
    rows = run(name, tmp_path)[1][section]
    if column:
        assert names <= {row[column[0]] for row in rows}
    else:
        assert all(names <= set(row) for row in rows)


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
    assert set(content["larger models"]) == {"daskgrad, two workers", "autograd"}


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


def test_many_workers_counts_messages(tmp_path):
    printed, content = run("many_workers", tmp_path)
    assert [row["workers"] for row in content["workers"]] == [1, 2, 4]
    for row in content["workers"]:
        costs = row["costs"]
        losses = {"first loss", "loss", "new worker"} if row["workers"] > 1 else set()
        assert set(costs) == {"place", "call", "large", "step", "look", *losses}
        assert all(cost["messages"] >= 2 for cost in costs.values()), "a request and its answer"
    assert costs["large"]["messages"] < costs["call"]["messages"]  # along a tree
    assert [row["nodes"] for row in content["graphs"]] == [10, 100]
    assert set(content["many items"]["costs"]) == {"place", "call", *losses}
    assert "| items a worker |" in printed


def test_without_jax_its_benchmark_says_so(tmp_path):
    hidden = "import importlib.util as u, runpy, sys; u.find_spec = lambda name: None; "
    script = f"sys.argv[1:] = []; runpy.run_path({str(JAX_SUMS)!r}, run_name='__main__')"
    assert "JAX is not installed" in printed_by("-c", hidden + script)


def test_chaos_goes_on_with_the_bits_of_a_quiet_run(tmp_path):
    """Whatever is wrong there makes the exit code 1, also of a quick run."""
    _, content = run("chaos", tmp_path)
    assert content["programs"] == len(content["samples"]) == 3
    assert sum(content["events"].values()) > 0
    assert not content["wrong"]
    assert "nothing is wrong" in (tmp_path / "chaos.txt").read_text()
