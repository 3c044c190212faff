"""Names of arguments: those that Python's own signatures tell, without asking for these."""

import functools
import inspect

import pytest

from daskgrad.autodiff.values.descriptions import argument_name


def three(x, y, z=1.0):
    return x


def many(x, *rest):
    return x


def named(x, *, y):
    return x


class Called:
    def __call__(self, x, y):
        return x

    def method(self, x, y):
        return x


partial = functools.partial
wrapped = functools.update_wrapper(partial(three, 1.0), three)
FUNCTIONS = [three, many, named, Called(), Called().method, partial(three, 1.0), wrapped]
FUNCTIONS += [partial(partial(three, 1.0), 2.0), partial(three, y=1.0), partial(many, 1.0, 2.0)]
FUNCTIONS += [partial(Called(), 1.0), partial(Called().method, 1.0)]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@pytest.mark.parametrize("fun", FUNCTIONS)
def test_the_name_of_an_argument_is_that_of_the_signature(fun):
    parameters = inspect.signature(fun).parameters.values()
    names = [each.name for each in parameters if each.kind in POSITIONAL]
    for number in range(3):
        expected = names[number] if number < len(names) else f"argument {number}"
        assert argument_name(fun, number) == expected


def test_an_argument_of_a_function_without_a_signature_has_a_number():
    assert argument_name(max, 1) == "argument 1"
    assert argument_name(partial(max, 1.0), 0) == "argument 0"
