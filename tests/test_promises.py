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
NAMED = re.compile(r"`((?:\w+/)+test_\w+)(?:::(test_\w+))?`(, \*long\*)?")
LONG = re.compile(r"mark\.(long|optional)\b")


def are_long(module):
    """For each test of a module, whether it is run by ``.ci/long`` alone."""
    tree = ast.parse((ROOT / "tests" / f"{module}.py").read_text())
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    is_long = any(mark.startswith("pytestmark") and LONG.search(mark) for mark in marks)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        test.name: is_long or any(LONG.search(ast.unparse(mark)) for mark in test.decorator_list)
        for test in tests
        if test.name.startswith("test_")
    }


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_tests_that_exist_and_says_which_are_long(promise):
    named = NAMED.findall(PROMISES[promise])
    assert named
    for module, test, long in named:
        tests = are_long(module)
        is_long = tests[test] if test else all(tests.values())
        assert is_long is bool(long), (module, test)


def test_there_are_promises():
    assert len(PROMISES) >= 10
    assert len(PROMISES) == SECTION.count("\n- ")
