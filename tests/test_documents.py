"""The code of the documents' pages runs as it stands there: a page is one session."""

import importlib.util
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^ *```python\n(.+?)^ *```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {  # these pages' blocks stand alone
    "docs/deployment.md",
    "docs/troubleshooting.md",  # tests/promises/test_troubleshooting.py
}
NEEDS = {  # libraries beyond those of the tests
    "docs/adapters.md": ("arviz", "jax", "nutpie", "pymc", "sklearn", "torch"),
    "docs/backends.md": ("jax", "torch"),
}
STARTS_A_CLUSTER = {"docs/dashboards.md", "docs/placed_items.md", "docs/rows.md"}


def pages():
    """Each page with code, and the mark of its test."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if name not in ELSEWHERE and BLOCK.search(path.read_text()):
            mark = "optional" if name in NEEDS else "long" if name in STARTS_A_CLUSTER else None
            yield pytest.param(name, marks=[getattr(pytest.mark, mark)] if mark else [])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(pages()))
def test_the_code_of_a_page_runs(name, tmp_path):
    missing = [each for each in NEEDS.get(name, ()) if not importlib.util.find_spec(each)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    blocks = BLOCK.findall((ROOT / name).read_text())
    if any("dg.visualize" in block for block in blocks) and not shutil.which("dot"):
        pytest.skip("needs Graphviz's program dot")
    program = "\n".join(textwrap.dedent(block) for block in blocks)
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
