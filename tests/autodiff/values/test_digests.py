"""Sources: a module that was edited and loaded again is told from the one before, and no other."""

import functools
import importlib
import sys

import cloudpickle
import numpy as np
import pytest
from distributed import Client

import daskgrad as dg
from daskgrad.autodiff.models import model
from daskgrad.autodiff.values import digests
from daskgrad.autodiff.values.digests import differing, found_from

MODULE = """
import functools

RATE, COUNT, HOME = 1.0, 0, "/home/a"
FACTOR = 2.0
calls = 0

def helper(x):
    return x * FACTOR

def unused(x):
    return x

def term(item, x, power=2):
    \"\"\"A term.\"\"\"
    global calls
    calls += 1
    scale = {1, 2, 3} if power in {"a", "b", "c"} else (4, "é")
    return helper((item - x) ** power).sum() + len(scale) + sum([y for y in (0.0, 1.5)])

def logged(fun):
    @functools.wraps(fun)
    def call(*args):
        return fun(*args)
    return call

def plainly(fun):
    def call(*args):
        return fun(*args)
    return call

@logged
def wrapped(item, x):
    return item * x

@plainly
def hidden(item, x):
    return item * x

class Model:
    size = 3
    def __init__(self, rate=1.0):
        self.rate = rate
    def __call__(self, item, x):
        return self.scaled * item * x
    @property
    def scaled(self):
        return self.rate * 1.0
    def term(self, item, x):
        return self(item, x)
"""
EDITS = {  # the model, what is edited, and what differs
    "code": ("term", "(item - x)", "(item + x)", "term"),
    "a constant within": ("term", "(0.0, 1.5)", "(0.0, 2.5)", "term"),
    "a default": ("term", "power=2", "power=3", "term"),
    "a helper": ("term", "x * FACTOR", "x + FACTOR", "helper"),
    "a number": ("term", "FACTOR = 2.0", "FACTOR = 3.0", "FACTOR"),
    "beneath a decorator": ("wrapped", "return item * x", "return item + x", "wrapped"),
    "in a closure": ("hidden", "return item * x", "return item + x", None),
    "a decorator": ("wrapped", "return fun(*args)", "return 2.0 * fun(*args)", "wrapped"),
    "a method": ("Model().term", "self(item, x)", "self(x, item)", "Model.term"),
    "a property": ("Model()", "self.rate * 1.0", "self.rate * 2.0", "Model.scaled"),
    "a callable object": ("Model()", "self.scaled * item", "self.scaled + item", "Model.__call__"),
    "a partial": ("functools.partial(term, 1.0)", "(item - x)", "(item + x)", "term"),
    "a function that goes by value": (
        "eval('lambda x: module.term(1.0, x)', {'module': module})",
        "(item - x)",
        "(item + x)",
        "term",
    ),
    "a number of a module": (
        "eval('lambda x: module.FACTOR * x', {'module': module})",
        "FACTOR = 2.0",
        "FACTOR = 3.0",
        "FACTOR",
    ),
    "nothing": ("term", "calls", "calls", None),
    "the text": ("term", "A term.", "A term of a sum.", None),
    "the lines": ("term", "import functools", "# comment\n\nimport functools", None),
    "another function": ("term", "return x\n", "return -x\n", None),
    "a counter": ("term", "calls = 0", "calls = 7", None),
    "a path": ("term", "/home/a", "/home/b", None),
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes and loads a module, again if it is loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "edited_models.py"

    def load(text):
        path.write_text(text)
        importlib.invalidate_caches()
        digests.is_constant.cache_clear()
        known = sys.modules.get("edited_models")
        return importlib.reload(known) if known else importlib.import_module("edited_models")

    yield load
    sys.modules.pop("edited_models", None)


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_module_is_told(name, load):
    expression, text, edited, differs = EDITS[name]
    module = load(MODULE)
    names = {**vars(module), "functools": functools, "module": module}
    digests = found_from(eval(expression, names))
    assert differing(digests) is None
    load(MODULE.replace(text, edited, 1 if name != "in a closure" else -1))
    found = differing(digests)
    assert (found and found[1]) == differs


@pytest.mark.parametrize("flag", ["VERSION", "by value"])
def test_what_cannot_be_compared_is_not(flag, load, monkeypatch):
    module = load(MODULE)
    if flag == "by value":
        cloudpickle.register_pickle_by_value(module)
    sent = dg.delayed(module.term).model.sent()
    if flag == "by value":
        cloudpickle.unregister_pickle_by_value(module)
    else:
        monkeypatch.setattr(model, flag, "another")
    load(MODULE.replace("(item - x)", "(item + x)"))
    sent.fun.unloaded().load()


def test_functions_without_source_have_no_digests():
    for fun in (np.sum, np.sin, len, functools.partial(np.sum, axis=0), lambda x: x, "".join):
        assert found_from(fun) == {}


def test_a_worker_with_the_module_as_it_was_says_so(load, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module, items, x = load(MODULE), [np.ones(2)] * 9, np.zeros(2)
    with Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        placed = dg.place(items)
        attached = placed.attach(np.ones((9, 2)))
        runs = {
            "a sum": lambda x: dg.map_sum(module.term, items, x),
            "a placed sum": lambda x: dg.map_sum(module.term, placed, x),
            "attached": lambda x: dg.map_sum(module.term, attached, x),
            "a graph": lambda x: dg.delayed(module.term)(2.0, dg.delayed(np.sin)(x)),
            "by value": lambda x: dg.map_sum(lambda item, x: module.term(item, x), items, x),
        }
        for run in runs.values():
            dg.value_and_grad(run)(x)
        module = load(MODULE.replace("(item - x)", "(item - 2.0 * x - 1.0)"))
        for run in runs.values():
            with pytest.raises(
                RuntimeError, match=r"uses edited_models.term, for which this worker"
            ):
                dg.value_and_grad(run)(x)
        client.restart()
        expected = sum([module.term(item, x) for item in items])
        assert dg.value_and_grad(runs["a sum"])(x)[0] == expected
