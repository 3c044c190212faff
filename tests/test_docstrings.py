"""Every public name has an example in its docstring, which holds."""

import ast
import doctest
import inspect
import pathlib
import re

import dask
import numpy as np
import pytest

import daskgrad as dg

ADAPTERS = ("flat", "flat_residuals")  # the others need libraries of their own
MODULES = "integrate interpolate linalg optimize signal sparse sparse.linalg special stats".split()
OTHERS = {
    *(f"dg.adapters.{name}" for name in dir(dg.adapters) if name not in ADAPTERS),
    "dg.dashboards.mount",
    *(f"dg.scipy.{name}" for name in MODULES),
}
PUBLIC = {
    **{f"dg.{name}": getattr(dg, name) for name in dg.__all__},
    **{f"dg.optim.{name}": getattr(dg.optim, name) for name in dg.optim.__all__},
    **{f"dg.adapters.{name}": getattr(dg.adapters, name) for name in ADAPTERS},
    "dg.random.generators": dg.random.generators,
}
EXPLAINED = {name: entry for name, entry in PUBLIC.items() if not inspect.ismodule(entry)}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_example_holds(name):
    """It may use ``np``, ``dask`` and ``dg``."""
    names = {"np": np, "dask": dask, "dg": dg}
    text = inspect.getdoc(EXPLAINED[name])
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert example.examples
    report = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=report.append)
    assert not report, "".join(report)


def test_the_site_lists_every_public_name():
    page = pathlib.Path(__file__).parent.parent.joinpath("docs/api/index.md").read_text()
    listed = re.findall(r"^   ([a-z][\w.]*|[A-Z]\w*)$", page, re.MULTILINE)
    assert not {f"dg.{name}" for name in listed} - {*PUBLIC, *OTHERS}
    assert not {*EXPLAINED, *OTHERS} - {f"dg.{name}" for name in listed}
    assert len(listed) == len(set(listed))


MOST = {r"\bthose\b": 5.0, r"\bwhose\b": 13.0, r"\bwhat\b": 9.0, r"\bof which\b": 1.0}
BEGINNINGS = re.compile(r"(?:^|[.:] +|\n\n)(?:Of|What|Where|The same)\b")


def docstrings():
    root = pathlib.Path(dg.__file__).parent
    for path in [*root.rglob("*.py"), *(root.parent / "dashboards").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.name}: {getattr(node, 'name', 'module')}", text


def test_docstrings_are_read_once():
    """Words that make sentences long, in 10,000."""
    texts = list(docstrings())
    everything = re.sub(r"\s+", " ", " ".join([text for _, text in texts])).lower()
    count = len(everything.split())
    assert count > 40_000
    for word, most in MOST.items():
        assert 1e4 * len(re.findall(word, everything)) / count <= most, word
    assert [place for place, text in texts if BEGINNINGS.search(text)] == []
