"""The tables of `benchmarks/peers.py`, and its peers, whose libraries are not installed here."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "benchmarks" / "peers"
PAGE = "before\n<!-- W1 -->\n\nold\n\n<!-- end of W1 -->\nafter\n"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import peer_tables

    return peer_tables


def measured(*used):
    return {"used": used, "ready": 1.25, "first": 0.5, "peak": 99.6, "lines": 8}


def found(**rows):
    named = {name.replace("_", ": "): row for name, row in rows.items()}
    return {"rows": named, "load": [1.0, 2.5], "rounds": 3, "machine": {"cpu": "abacus"}}


def test_a_table_has_ratios_of_rounds_and_peers_that_failed(tables):
    rows = found(daskgrad_a=measured(2e-3, 4e-3, 6e-3), jax_b=measured(1e-3, 2e-3, 6e-3))
    rows["rows"]["stan: w1"] = {"failed": "cannot be installed: a | b"}
    text = tables.table_of("W1", rows)
    cells = [[cell.strip() for cell in line.split("|")] for line in text.split("\n")[:5]]
    assert cells[2][1:-1] == ["daskgrad: a", "4", "1.00", "1.2", "500", "100", "8"]
    assert cells[3][1:-1] == ["jax: b", "2", "2.00", "1.2", "500", "100", "8"]
    assert cells[4][1:-1] == ["stan: w1", "cannot be installed: a   b", *[""] * 5]
    assert text.endswith("3 rounds; abacus, load 1.0 to 2.5.")
    page = tables.written(PAGE, {"W1": text})
    assert tables.written(page, {"W1": "old"}) == PAGE
    assert text in page


def test_wanted_ratios_are_of_rows_that_were_measured(tables):
    work, ours, peer, limit = tables.WANTED[0]
    rows = {ours: measured(3e-3), peer: measured(2e-3)}
    table = tables.wanted_table({work: {"rows": rows}})
    assert table.count("\n") == 2
    assert re.search(rf"{peer} +\| +{limit:g} \| +1.50 \|", table)
    assert tables.claims_of({work: {"rows": {**rows, peer: {"failed": "no"}}}}) == []


def test_the_programs_of_peers_compile_and_have_the_names_that_are_wanted(tables):
    folders = [path.parent for path in PEERS.glob("*/requirements.txt")]
    assert len(folders) == 12
    texts = {}
    for folder in folders:
        for path in folder.glob("*.py"):
            text = path.read_text()
            compile(text, path, "exec")
            assert path.stem[0] != "w" or "def set_up(" in text
            texts[folder.name, path.stem[:2]] = texts.get((folder.name, path.stem[:2]), "") + text
    for work, *labels, _ in tables.WANTED:
        for label in labels:
            folder, name = label.split(": ", 1)
            assert f'"{name}"' in texts[folder, work.lower()], label
    page = (ROOT / "docs" / "comparison.md").read_text()
    for name in ("wanted", "versions", "W1", "W2", "W3", "W4", "W5"):
        assert page.count(f"<!-- {name} -->\n") == page.count(f"\n<!-- end of {name} -->") == 1
