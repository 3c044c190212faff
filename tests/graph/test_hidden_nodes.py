"""A node used as an array, and nodes where they would be taken for constants."""

import functools
import math
import operator

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.special
from inputs import Unregistered, X, energy, named

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

# ------------------------------------------------------------------ a node used as an array


MISUSES = {
    "np.sin": np.sin,
    "np.sum": np.sum,
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "autograd's sin": anp.sin,
    "np.asarray": np.asarray,
    "np.array of a list": lambda x: np.array([x, x]),
    "adding with out": lambda x: np.add(x, 1.0, out=np.ones(3)),
    "a ufunc's method": lambda x: np.add.reduce(x),
    "into an array": lambda x: operator.iadd(np.ones(3), x),
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "if": lambda x: 1.0 if x else 2.0,
    "iteration": list,
    "unpacking": lambda x: operator.add(*x),
    "len": len,
    "in": lambda x: 1.0 in x,
    "as an index": lambda x: [1, 2][x],
    "equality": lambda x: x == 0.5,
    "inequality": lambda x: x != 0.5,
    "less": lambda x: x < 0.5,
    "greater or equal": lambda x: x >= 0.5,
    "abs": abs,
    "round": round,
    "floor division": lambda x: x // 2.0,
    "reflected floor division": lambda x: 2.0 // x,
    "remainder": lambda x: x % 2.0,
    "divmod": lambda x: divmod(x, 2.0),
    "assignment": lambda x: operator.setitem(x, 0, 1.0),
    "formatting": lambda x: f"{x:.3f}",
    "math": math.sin,
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_node_is_no_array(misuse):
    for node in (dg.variable(X, "x"), energy(dg.variable(X))):
        with pytest.raises(
            TypeError, match=r"<.*(x|energy)>, which is not computed yet.*dg\.delayed"
        ):
            MISUSES[misuse](node)


@pytest.mark.parametrize(
    ("misuse", "asked", "instead"),
    [
        (np.sin, "np.sin", r"dg\.delayed\(autograd\.numpy\.sin\)\(node\)"),
        (np.linalg.norm, r"np\.linalg\.norm", r"\(autograd\.numpy\.linalg\.norm\)\(node\)"),
        (np.fft.fft, r"np\.fft\.fft", r"\(autograd\.numpy\.fft\.fft\)\(node\)"),
        (np.linalg.solve, r"np\.linalg\.solve", r"dg\.delayed"),
        (
            scipy.special.gammaln,
            r"scipy\.special\.gammaln",
            r"\(autograd\.scipy\.special\.gammaln\)",
        ),
        (np.frompyfunc(abs, 1, 1), r"abs \(vectorized\)", r"\(lambda x: \.\.\.\)\(node\)"),
        (list, "iteration", r"a, b = node\[0\], node\[1\]"),
        (len, r"len\(\)", r"dg\.delayed\(len\)\(node\)"),
        (bool, r"bool\(\)", "such as an if, stands in that function"),
        (lambda x: x < 1.0, "comparison", "such as an if, stands in that function"),
    ],
)
def test_what_a_node_is_asked_is_named_in_full_with_what_to_write_instead(misuse, asked, instead):
    with pytest.raises(
        TypeError, match=rf"^{asked} needs the value of <.*>, which.*: .*{instead}.*"
    ):
        with_arguments(misuse)(energy(X))


def with_arguments(function):
    if function is np.linalg.solve:
        return lambda node: function(np.eye(3), node)
    return function


@pytest.mark.parametrize(("attribute", "model"), [("T", "x.T"), ("sum", r"x.sum\(\)")])
def test_an_attribute_that_a_node_lacks_stands_in_a_model(attribute, model):
    with pytest.raises(AttributeError, match=rf": dg\.delayed\(lambda x: {model}\)\(node\);"):
        getattr(energy(X), attribute)


@pytest.mark.parametrize("attribute", ["shape", "T", "sum", "dtype", "copy", "real"])
def test_a_node_has_no_attributes_of_an_array(attribute):
    with pytest.raises(
        AttributeError, match=rf"\.{attribute} needs the value of .*energy.*dg\.delayed"
    ):
        getattr(energy(X), attribute)
    assert not hasattr(energy(X), attribute)


def test_a_node_does_not_go_into_an_array():
    with pytest.raises(ValueError, match="sequence") as caught:
        np.zeros(3)[0] = energy(X)
    assert "dg.delayed" in str(caught.value.__cause__)


def test_nodes_are_equal_to_themselves_alone_so_that_they_stand_in_sets_and_dicts():
    first, second = energy(X), energy(X)
    assert first == first
    assert len({first, second, first}) == 2
    assert {first: 1}[first] == 1


# ------------------------------------------------------------- nodes where they are not found


class Holder:
    def __init__(self, inside):
        self.inside = inside

    def model(self, y):
        return y * self.inside

    __call__ = model


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside


def object_array(x):
    array = np.empty(2, dtype=object)
    array[:] = [Unregistered(x), None]
    return array


HIDING_PLACES = {
    "an unregistered dataclass": Unregistered,
    "a list in a dataclass": lambda x: Unregistered([1, {"a": x}]),
    "a dataclass in a dataclass": lambda x: Unregistered(Unregistered(x)),
    "an object": Holder,
    "slots": Slotted,
    "a set": lambda x: {x},
    "a frozen set": lambda x: frozenset([x, 1.0]),
    "the values of a dict": lambda x: {"a": x}.values(),
    "the items of a dict": lambda x: {"a": x}.items(),
    "an object array": object_array,
    "a partial": lambda x: functools.partial(pow, x),
    "a function": lambda x: lambda: x,
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_a_node_that_would_be_taken_for_a_constant_is_an_error(place):
    hide = HIDING_PLACES[place]
    told = "holds <Variable x>; pass nodes as arguments.*register the class with optree"
    model = dg.delayed(lambda y, other: y, name="model")
    with pytest.raises(TypeError, match=f"an argument of model 'model' is .* that {told}"):
        dg.grad(lambda x: model(x, hide(x)))(2.0)
    with pytest.raises(TypeError, match=f"an argument of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.map_sum(named(lambda i, y: i, "term"), [1.0], hide(x)))(2.0)
    with pytest.raises(TypeError, match=f"the items of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.map_sum(named(lambda i, y: i, "term"), [1.0, hide(x)], x))(2.0)
    with pytest.raises(TypeError, match=f"the items of model 'term' is .* that {told}"):
        dg.grad(lambda x: dg.reduce_sum(named(lambda i, y: i, "term"), [1.0, hide(x)], x))(2.0)


def closed_over(x):
    return lambda y: y * x


def closed_over_list(x):
    values = [x]
    return lambda y: y * values[0]


def default(x):
    return lambda y, z=x: y * z


def keyword_default(x):
    return lambda y, *, z=x: y * z


FUNCTIONS = {
    "a closure": closed_over,
    "a list in a closure": closed_over_list,
    "a function in a closure": lambda x: closed_over_list(closed_over(x)),
    "a default": default,
    "a default of a keyword": keyword_default,
    "a partial": lambda x: functools.partial(operator.mul, x),
    "a keyword of a partial": lambda x: functools.partial(pow, exp=x),
    "a list in a partial": lambda x: functools.partial(operator.mul, [x]),
    "a partial of a closure": lambda x: functools.partial(closed_over(x), 1.0),
    "a bound method": lambda x: Holder(x).model,
    "an object that is called": Holder,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_node_within_a_models_function_is_an_error(kind):
    told = "that holds <Variable x>; pass nodes as arguments"
    with pytest.raises(TypeError, match=f"the function of model 'model' is .* {told}"):
        dg.grad(lambda x: dg.delayed(FUNCTIONS[kind](x), name="model")(x))(2.0)
    for add_up in (dg.map_sum, dg.reduce_sum):
        model = functools.partial(dg.delayed, name="model")
        with pytest.raises(TypeError, match=f"the function of model 'model' is .* {told}"):
            dg.grad(lambda x: add_up(model(FUNCTIONS[kind](x)), [1.0, 2.0], x))(2.0)  # noqa: B023


def test_a_long_argument_is_not_searched_to_its_end():
    """Recording a call takes microseconds, whatever its constants hold."""
    looked_at = []

    class Counted(set):
        def __iter__(self):
            for number in range(10_000):
                looked_at.append(number)
                yield number

    dg.delayed(len)(Counted())
    assert 0 < len(looked_at) <= 100
