"""A model that asks for the type of its argument takes the branch that it takes on arrays."""

import collections.abc
import functools
import numbers
import types
import typing

import numpy as np
import pytest
from inputs import C, X, differences
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

TABLE = np.outer(X, C)


@functools.singledispatch
def dispatched(x):
    return 2


@dispatched.register(np.ndarray)
def of_array(x):
    return 3


@dispatched.register(float)
def of_float(x):
    return 4


def matched(x):
    match x:
        case np.ndarray():
            return 2
        case float():
            return 3
    return 4


def iterates(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True


def has_length(x):
    try:
        len(x)
    except TypeError:
        return False
    return True


class Rates:
    """An object with a method, a property and a class method that ask."""

    def is_array(self, x):
        return type(x) is np.ndarray

    @classmethod
    def is_float(cls, x):
        return type(x) in (float, np.float64)

    @property
    def ask(self):
        return lambda x: type(x).__name__ == "ndarray"


RATES = Rates()


def helper(x):
    return type(x) is np.ndarray


def nested(x):
    return [type(v) is np.float64 for v in (x, x * 2.0)].count(True)


QUESTIONS = {
    "isinstance ndarray": lambda x: isinstance(x, np.ndarray),
    "isinstance float": lambda x: isinstance(x, float),
    "isinstance generic": lambda x: isinstance(x, np.generic),
    "isinstance floating": lambda x: isinstance(x, np.floating | int),
    "isinstance list": lambda x: isinstance(x, list | tuple),
    "isinstance Number": lambda x: isinstance(x, numbers.Number),
    "isinstance Real": lambda x: isinstance(x, numbers.Real),
    "isinstance Iterable": lambda x: isinstance(x, collections.abc.Iterable),
    "isinstance Sequence": lambda x: isinstance(x, collections.abc.Sequence),
    "isinstance Sized": lambda x: isinstance(x, collections.abc.Sized),
    "isinstance Container": lambda x: isinstance(x, collections.abc.Container),
    "isinstance Collection": lambda x: isinstance(x, collections.abc.Collection),
    "isinstance Hashable": lambda x: isinstance(x, collections.abc.Hashable),
    "isinstance Callable": lambda x: isinstance(x, collections.abc.Callable),
    "isinstance SupportsFloat": lambda x: isinstance(x, typing.SupportsFloat),
    "np.isscalar": np.isscalar,
    "np.ndim": np.ndim,
    "np.size": np.size,
    "np.iterable": np.iterable,
    "iter": iterates,
    "len": has_length,
    "callable": callable,
    "type is": lambda x: type(x) is np.ndarray,
    "type is not": lambda x: type(x) is not np.float64,
    "type ==": lambda x: type(x) == np.float64,  # noqa: E721
    "type !=": lambda x: type(x) != np.ndarray,  # noqa: E721
    "type in a tuple": lambda x: type(x) in (float, np.ndarray),
    "type in a set": lambda x: type(x) in {int, np.float64},
    "type as a key": lambda x: {np.ndarray: 2, np.float64: 3}.get(type(x), 4),
    "name of the type": lambda x: type(x).__name__ == "ndarray",
    "issubclass": lambda x: issubclass(type(x), np.ndarray),
    "issubdtype of the type": lambda x: (
        type(x) is np.ndarray or np.issubdtype(type(x), np.floating)
    ),
    "__class__": lambda x: x.__class__ is np.ndarray,
    "__class__.__name__": lambda x: len(x.__class__.__name__),
    "singledispatch": dispatched,
    "match": matched,
    "hasattr __len__": lambda x: hasattr(x, "__len__"),
    "hasattr __iter__": lambda x: hasattr(x, "__iter__"),
    "hasattr __array__": lambda x: hasattr(x, "__array__"),
    "hasattr __float__": lambda x: hasattr(x, "__float__"),
    "hasattr flags": lambda x: hasattr(x, "flags"),
    "hasattr shape": lambda x: hasattr(x, "shape"),
    "hasattr is_integer": lambda x: hasattr(x, "is_integer"),
    "hasattr tolist": lambda x: hasattr(x, "tolist"),
    "hasattr append": lambda x: hasattr(x, "append"),
    "dtype.kind": lambda x: x.dtype.kind == "f",
    "is None": lambda x: x is None,
    "result_type": lambda x: np.result_type(x) == np.float64,
    "issubdtype of dtype": lambda x: np.issubdtype(x.dtype, np.floating),
    "shares_memory": lambda x: np.shares_memory(x, np.reshape(x, (-1,))),
    "may_share_memory": lambda x: np.may_share_memory(x, x * 2.0),
    "in a helper": helper,
    "in a method": lambda x: RATES.is_array(x),
    "in a class method": lambda x: Rates.is_float(x),
    "in a property": lambda x: RATES.ask(x),
    "in a comprehension": nested,
    "in a partial": functools.partial(lambda kind, x: type(x) is kind, np.ndarray),
}
# an array, a number and an array without axes
PARTS = ((1.0, lambda x: x), (7.0, lambda x: x[1]), (50.0, lambda x: np.reshape(x[0], ())))


ITEMS, WEIGHTS = np.tile(X, (16, 1)), np.arange(16.0)


def last(fun, count=14):
    return [fun() for _ in range(count)][-1]


def gradient_of_sum(model, items):
    """The mean value and gradient of many items."""
    value, gradient = dg.value_and_grad(lambda x: dg.map_sum(model, items, x))(X)
    return value / len(items), gradient / len(items)


def value_and_tangents(fun):
    pairs = [dg.jvp(dg.delayed(fun), (X,), (row,)) for row in np.eye(3)]
    return pairs[0][0], np.stack([tangent for _, tangent in pairs])


WAYS = {
    "tape": lambda fun: dg.value_and_grad(dg.delayed(fun, compile=False))(X),
    "program": lambda fun: last(lambda: dg.value_and_grad(dg.delayed(fun))(X)),
    "vouched": lambda fun: last(lambda: dg.value_and_grad(dg.delayed(fun, compile=True))(X)),
    "jvp": value_and_tangents,
    "hvp": lambda fun: (fun(X), dg.hvp(dg.delayed(fun), (X,), (X,))[1][0]),
    "batch": lambda fun: last(lambda: gradient_of_sum(lambda a, x: fun(x), ITEMS), 3),
    "items": lambda fun: last(
        lambda: gradient_of_sum(lambda a, x: fun(a) / fun(X) * fun(x), ITEMS), 3
    ),
    "between models": lambda fun: last(lambda: dg.value_and_grad(fun)(X)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_branch_is_that_of_plain_values(name, way):
    ask = QUESTIONS[name]

    def factor(x):
        return 1.0 + sum([weight * ask(part(x)) for weight, part in PARTS])

    if way == "between models" and "memory" in name:
        with pytest.raises(TypeError, match=r"which is not shared between models; ask within"):
            WAYS[way](lambda x: factor(x) * np.sum(x**2))
        return
    value, gradient = WAYS[way](lambda x: factor(x) * np.sum(x**2))
    assert_allclose(value, factor(X) * np.sum(X**2))
    assert_allclose(gradient, factor(X) * 2.0 * X)


def gradient(fun):
    return dg.grad(dg.delayed(fun))(X)


def defined(source, **names):
    """A function ``model`` in a module of its own."""
    module = types.ModuleType("models_that_ask")
    vars(module).update(np=np, **names)
    exec(source, vars(module))
    return module


SEVERAL = {  # results of several arrays
    "named tuple": lambda x: np.linalg.slogdet(np.eye(3) + np.outer(x, x)),
    "tuple": lambda x: np.modf(x * 2.5),
    "list": lambda x: np.split(x, 3),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_results_are_the_container_that_they_are(name, compiled):
    def fun(x):
        several = SEVERAL[name](x)
        answers = isinstance(several, tuple), type(several) is tuple, type(several) is list
        numbers = *answers, hasattr(several, "logabsdet"), len(type(several).__name__)
        last = several.logabsdet if hasattr(several, "logabsdet") else several[-1]
        return np.sum(last) * sum([n * 3.0**place for place, n in enumerate(numbers)])

    for _ in range(4):
        value, gradient = dg.value_and_grad(dg.delayed(fun, compile=compiled))(X)
        assert_allclose(value, fun(X))
        assert_allclose(gradient, differences(fun, X), rtol=1e-6, atol=1e-6)


OBJECTS = """
class Item:
    def energy(self, x):
        return np.sum(x) * (1.0 if type(x) is np.ndarray else 5.0)

def energy(x):
    return Item().energy(x)
"""
ARGUMENTS = {  # a function or an object is an argument, or an item; nothing else refers to it
    "function": lambda x, module: dg.delayed(lambda fun, x: fun(x))(module.energy, x),
    "method": lambda x, module: dg.delayed(lambda fun, x: fun(x))(module.Item().energy, x),
    "object": lambda x, module: dg.delayed(lambda item, x: item.energy(x))(module.Item(), x),
    "items": lambda x, module: dg.map_sum(
        lambda item, x: item.energy(x) / 4, [module.Item()] * 4, x
    ),
    "parts of items": lambda x, module: dg.map_sum(
        lambda item, x: item[0]["it"].energy(x) / 4, [({"it": module.Item()}, 1.0)] * 4, x
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_a_model_gets_asks_as_the_model_does(name):
    module = defined(OBJECTS)
    for _ in range(4):
        assert_allclose(dg.grad(lambda x: ARGUMENTS[name](x, [module][0]))(X), np.ones(3))


def test_an_object_of_the_objective_asks_as_the_objective_does():
    assert_allclose(dg.grad(lambda x, item: item.energy(x))(X, defined(OBJECTS).Item()), np.ones(3))


def test_a_function_that_is_defined_again_is_answered_again():
    module = defined("def model(x): return np.sum(x) * helper(x)", helper=lambda x: 2.0)
    model = dg.delayed(module.model)
    assert_allclose(dg.grad(model)(X), np.full(3, 2.0))
    module.helper = lambda x: 3.0 if type(x) is np.ndarray else 4.0
    assert_allclose(dg.grad(model)(X), np.full(3, 3.0))
    module.helper.__code__ = (lambda x: 5.0 if type(x) is np.ndarray else 6.0).__code__
    assert_allclose(dg.grad(model)(X), np.full(3, 5.0))


def test_code_that_asks_about_other_things_does_what_it_did():
    source = """
def model(x):
    class Meta(type): pass
    made = type("Made", (), {})
    assert isinstance(made, type) and type(made) is type and type(made()) is made
    assert made.__module__ == __name__ and Meta("Other", (), {}).__module__ == __name__
    assert type(type) is type and hasattr(made, "__doc__") and not hasattr(made(), "data")
    return np.sum(x)
"""
    module = defined(source)
    module.model(X)
    assert_allclose(gradient(module.model), np.ones(3))


def test_a_name_of_the_module_is_no_builtin():
    module = defined("def model(x): return np.sum(x) * type(x)", type=lambda x: 3.0)
    assert_allclose(gradient(module.model), np.full(3, 3.0))


def test_code_with_too_many_names_says_what_to_write():
    names = [f"name_{number}" for number in range(130)]
    source = f"def model(x): return np.sum(x) if type(x) is np.ndarray else {' + '.join(names)}"
    assert_allclose(gradient(defined(source).model), np.ones(3))
    source += ".type"
    with pytest.raises(TypeError, match=r"'model' calls type\(\).*write isinstance\(x, np.ndarray"):
        gradient(defined(source).model)


def test_a_number_is_not_iterable():
    with pytest.raises(TypeError, match=r"a traced number .* is not iterable, in .*test_questions"):
        gradient(lambda x: sum([v for v in x[0]]))


WITHOUT_VALUE = {
    "isinstance": lambda y: isinstance(y, np.ndarray),
    "Iterable": lambda y: isinstance(y, collections.abc.Iterable),
    "np.isscalar": np.isscalar,
    "type": helper,
    "hasattr": lambda y: hasattr(y, "__len__"),
    "singledispatch": dispatched,
}


@pytest.mark.parametrize("name", WITHOUT_VALUE)
def test_a_node_without_value_says_where_to_ask(name):
    ask, double = WITHOUT_VALUE[name], dg.delayed(lambda x: 2.0 * x, name="double")
    with pytest.raises(TypeError, match=r"needs the value of <CallNode double>.*in that function"):
        dg.grad(lambda x: np.sum(double(x)) * (1.0 + ask(double(x))))(X)
    with pytest.raises(TypeError, match=r"memory of <Variable x.*ask within a model"):
        dg.grad(lambda x: np.sum(x) * np.shares_memory(x, double(x)))(X)
