"""What is promised has tests, which it names."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SECTION = ROOT.joinpath("docs/guarantees.md").read_text().split("\n## ")[0]
PROMISES = {
    re.match(r"\*\*(.*?)\*\*", text, re.S)[1].replace("\n  ", " "): text
    for text in SECTION.split("\n- ")[1:]
}
NAMED = re.compile(r"`((?:\w+/)+test_\w+)(?:::(test_\w+))?`")


def functions_of(module):
    path = ROOT / "tests" / f"{module}.py"
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_tests_that_exist(promise):
    named = NAMED.findall(PROMISES[promise])
    assert named
    for module, test in named:
        there = functions_of(module)
        assert test in there if test else any(name.startswith("test_") for name in there)


def test_there_are_promises():
    assert len(PROMISES) >= 10
    assert len(PROMISES) == SECTION.count("\n- ")
