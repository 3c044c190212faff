"""The code of the documents' pages runs as it stands there: a page is one session.

In short, those that need no cluster share a process, which imports everything once.
"""

import importlib.util
import json
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
STARTS_A_CLUSTER = {
    *("docs/dashboards.md", "docs/placed_items.md", "docs/rows.md", "docs/tutorial.md"),
}


ONE_PROCESS = """
import json, sys, traceback
programs, errors = json.load(sys.stdin), {}
for name, program in programs.items():
    try:
        exec(compile(program, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        errors[name] = traceback.format_exc()
sys.exit("\\n".join(f"{name}: {error}" for name, error in errors.items()) or None)
"""


def texts():
    """The pages with code."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    return {name: text for name, text in pages.items() if BLOCK.search(text)}


ALONE = sorted([*NEEDS, *STARTS_A_CLUSTER])
TOGETHER = sorted(texts().keys() - {*ALONE, *ELSEWHERE})


def program_of(name):
    blocks = BLOCK.findall(texts()[name])
    if any("dg.visualize" in block for block in blocks) and not shutil.which("dot"):
        pytest.skip("needs Graphviz's program dot")
    return "\n".join(map(textwrap.dedent, blocks))


def run(code, folder, **options):
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.timeout(300)
def test_the_code_of_the_pages_runs(tmp_path):
    assert len(TOGETHER) > 5
    programs = {name: program_of(name) for name in TOGETHER}
    run(ONE_PROCESS, tmp_path, input=json.dumps(programs))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.optional if name in NEEDS else pytest.mark.long)
        for name in ALONE
    ],
)
def test_the_code_of_a_page_runs(name, tmp_path):
    missing = [entry for entry in NEEDS.get(name, ()) if not importlib.util.find_spec(entry)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    run(program_of(name), tmp_path)


def test_every_example_is_in_the_gallery():
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    examples = sorted((ROOT / "examples").glob("[a-z]*.py"))
    assert len(examples) > 5
    parts = ("{{download}}`examples/{}.py <", "include}} ../examples/{}.py")
    wanted = [part.format(path.stem) for path in examples for part in parts]
    assert [part for part in wanted if part not in gallery] == []
