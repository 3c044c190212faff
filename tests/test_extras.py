"""A missing optional library is an error of one line, before anything runs."""

import importlib
import sys
import types

import numpy as np
import pytest

import daskgrad as dg
import daskgrad.scipy

X = np.ones(3)
RUNS = []


def fun(x):
    RUNS.append(x)
    return dg.delayed(np.sum)(x)


def within(context):
    with context:
        fun(X)


ROWS = [  # the library, the extra, and who needs it
    ("scipy", "scipy", lambda: importlib.reload(daskgrad.scipy)),
    ("scipy", "scipy", lambda: dg.jacobian(fun, sparse=True)),
    ("scipy", "scipy", lambda: dg.adapters.flat_residuals(fun, X)),
    ("scipy", "scipy", lambda: dg.adapters.flat(fun, X)[0].bounds()),
    ("sklearn", "sklearn", lambda: dg.adapters.SumEstimator),
    ("nutpie", "nutpie", lambda: dg.adapters.sample(fun, X)),
    ("arviz", "nutpie", lambda: dg.adapters.sample(fun, X)),
    ("pytensor", "pymc", lambda: dg.adapters.as_pytensor(fun)),
    ("jax", "jax", lambda: dg.adapters.as_jax(fun)),
    ("torch", "torch", lambda: dg.adapters.as_torch(fun)),
    ("bokeh", "dashboards", lambda: within(dg.report("run.html"))),
    ("rich", "progress", lambda: within(dg.progress())),
    ("graphviz", "visualize", lambda: dg.visualize(fun, X, filename="graph.svg")),
]


class Hidden:
    """A library that Python does not find."""

    def __init__(self, library):
        self.library = library

    def find_spec(self, name, *_):
        if name == self.library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(("library", "extra", "call"), ROWS)
def test_a_missing_library_is_an_error_of_one_line(library, extra, call, monkeypatch):
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(library), *sys.meta_path])
    if library == "arviz":
        monkeypatch.setitem(sys.modules, "nutpie", types.ModuleType("nutpie"))
    monkeypatch.delitem(sys.modules, "daskgrad.adapters.estimators", raising=False)
    monkeypatch.delitem(vars(dg.adapters), "SumEstimator", raising=False)
    RUNS.clear()
    with pytest.raises(ModuleNotFoundError) as caught:
        call()
    message = str(caught.value)
    assert message.endswith(f'which is not installed: run pip install "daskgrad[{extra}]"')
    assert "\n" not in message
    assert caught.value.__suppress_context__  # no other error is shown above
    assert not RUNS


def test_a_library_that_lacks_a_module_of_its_own_is_told_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ModuleNotFoundError, match=r"scipy\.optimize"):
        dg.adapters.flat(fun, X)[0].bounds()
