"""A node used as an array, and nodes where they would be taken for constants."""

import functools
import math
import operator
import re

import autograd.numpy
import numpy as np
import pytest
from inputs import Unregistered, X, energy, named

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

# ------------------------------------------------------------------ a node used as an array


OF_ANY = {  # also of variables
    "adding with out": lambda x: np.add(x, 1.0, out=np.ones(3)),
    "into an array": lambda x: operator.iadd(np.ones(3), x),
    "in": lambda x: 1.0 in x,
    "round": round,
    "assignment": lambda x: operator.setitem(x, 0, 1.0),
    "formatting": lambda x: f"{x:.3f}",
}
MISUSES = {
    **OF_ANY,
    "np.asarray": np.asarray,
    "np.array of a list": lambda x: np.array([x, x]),
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "if": lambda x: 1.0 if x else 2.0,
    "iteration": list,
    "unpacking": lambda x: operator.add(*x),
    "len": len,
    "as an index": lambda x: [1, 2][x],
    "equality": lambda x: x == 0.5,
    "inequality": lambda x: x != 0.5,
    "less": lambda x: x < 0.5,
    "greater or equal": lambda x: x >= 0.5,
    "math": math.sin,
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_node_is_no_array(misuse):
    for node in (energy(dg.variable(X)), *([dg.variable(X, "x")] if misuse in OF_ANY else [])):
        with pytest.raises(
            TypeError,
            match=r"<.*(energy>, which is not computed yet|x: .*>, whose deriv).*dg\.delayed|out=",
        ):
            MISUSES[misuse](node)


BRANCH = "such as an if, stands in that function"
ADVICE = {  # what is asked, and what to write instead
    "np.shape": (np.shape, r"dg\.delayed\(np\.shape\)\(node\)"),
    "np.sum with out=": (lambda x: np.sum(x, out=np.ones(1)), "leave out= away"),
    "iteration": (list, r"a, b = node\[0\], node\[1\]"),
    "len()": (len, r"dg\.delayed\(len\)\(node\)"),
    "bool()": (bool, BRANCH),
    "comparison": (lambda x: x < 1.0, BRANCH),
}


@pytest.mark.parametrize("question", ADVICE)
def test_what_a_node_is_asked_is_named_in_full_with_what_to_write_instead(question):
    misuse, instead = ADVICE[question]
    message = (
        rf"^{re.escape(question)} needs the value of <.*>, which.*"
        rf"dg\.grad\(dg\.delayed\(fun\)\), or.*: .*{instead}.*"
    )
    with pytest.raises(TypeError, match=message):
        misuse(energy(X))


@pytest.mark.parametrize("attribute", ["shape", "tolist", "dtype", "fill"])
def test_a_node_has_no_attributes_of_an_array(attribute):
    call = "()" if attribute in ("tolist", "fill") else ""
    message = rf"\.{attribute} needs the value of .*energy.*: dg\.delayed\(lambda x: x\."
    with pytest.raises(AttributeError, match=message + re.escape(f"{attribute}{call})(node);")):
        getattr(energy(X), attribute)
    assert not hasattr(energy(X), attribute)


def test_a_node_does_not_go_into_an_array():
    with pytest.raises(ValueError, match="sequence") as caught:
        np.zeros(3)[0] = energy(X)
    assert "dg.delayed" in str(caught.value.__cause__)


def test_nodes_are_equal_to_themselves_alone_so_that_they_stand_in_sets_and_dicts():
    first, second = energy(X), energy(X)
    assert first in [first]
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
}


def closed_over(x):
    return lambda y: y * x


def closed_over_list(x):
    values = [x]
    return lambda y: y * values[0]


def deep_beside_functions(x):
    for _ in range(30):
        x = [x]
    functions = [autograd.numpy.sin, autograd.numpy.cos, autograd.numpy.sum]  # hold themselves
    return lambda y: [function(y) * x for function in functions]


FUNCTIONS = {
    "a closure": closed_over,
    "a list beside functions of NumPy": deep_beside_functions,
    "a list in a closure": closed_over_list,
    "a function in a closure": lambda x: closed_over_list(closed_over(x)),
    "a default": lambda x: lambda y, z=x: y * z,
    "a default of a keyword": lambda x: lambda y, *, z=x: y * z,
    "a partial": lambda x: functools.partial(operator.mul, x),
    "a keyword of a partial": lambda x: functools.partial(pow, exp=x),
    "a list in a partial": lambda x: functools.partial(operator.mul, [x]),
    "a partial of a closure": lambda x: functools.partial(closed_over(x), 1.0),
    "a bound method": lambda x: Holder(x).model,
    "an object that is called": Holder,
}


@pytest.mark.parametrize("place", [*HIDING_PLACES, *FUNCTIONS])
def test_a_node_that_would_be_taken_for_a_constant_is_an_error(place):
    hide = {**HIDING_PLACES, **FUNCTIONS}[place]
    model, term = dg.delayed(lambda y, other: y, name="model"), named(lambda i, y: i, "term")
    cases = [
        (lambda x: model(x, hide(x)), "an argument of model 'model'"),
        (lambda x: dg.map_sum(term, [1.0], hide(x)), "an argument of model 'term'"),
        (lambda x: dg.map_sum(term, [1.0, hide(x)], x), "the items of model 'term'"),
        (lambda x: dg.reduce_sum(term, [1.0, hide(x)], x), "the items of model 'term'"),
    ]
    if place in FUNCTIONS:
        what = "the function of model 'own'"
        cases += [
            (lambda x: dg.delayed(hide(x), name="own")(x), what),
            (lambda x: dg.map_sum(dg.delayed(hide(x), name="own"), [1.0, 2.0], x), what),
            (lambda x: dg.reduce_sum(dg.delayed(hide(x), name="own"), [1.0, 2.0], x), what),
        ]
    for objective, what in cases:
        advice = "pass nodes as arguments.*register the class with optree"
        with pytest.raises(TypeError, match=f"{what} is .* that holds <Variable x: .*>; {advice}"):
            dg.grad(objective)(2.0)


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
