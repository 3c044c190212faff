"""What the tasks of a block keep, and how they add; what they compute is in ``test_map_sum``."""

import autograd.numpy as np
import dask
import pytest

import daskgrad as dg
from daskgrad.autodiff.models.tracing import Active
from daskgrad.sums.adding import add_captured
from daskgrad.sums.block_tasks import Summand, capture_block

X = np.linspace(0.2, 1.3, 4)
ITEMS = [0.3, -1.2, 2.5, 0.7, 1.9]


def captured(fun):
    """What the forward task of a block of the sum of ``fun(item, x)`` returns."""
    node = dg.map_sum(dg.delayed(fun), ITEMS, dg.variable(X))
    return capture_block(node.model, Summand(node.call, (Active(1, False),)), 0, [X], ITEMS)


def test_terms_that_are_not_one_kind_are_an_error():
    with pytest.raises(TypeError, match=r"its terms are float64\[4\]"):
        add_captured([captured(lambda item, x: np.sin(item * x))])
    with pytest.raises((TypeError, ValueError), match=r"one kind|one structure and shape"):
        captured(lambda item, x: x * item if item > 1 else np.sum(x))
    with pytest.raises(TypeError, match=r"of the same kind: 3 of 5 .* one real number"):
        captured(lambda item, x: np.sum(x) * (1j if item > 1 else 1.0))


def odd(item, x):
    return np.sum(x) * np.ones(2 if item != 5.0 else 3)


SUMS = {  # with the item that is not like the others, or without where no task has two items
    "value": lambda: dg.map_sum(odd, TERMS, X, grainsize=8).compute(),
    "the last of a value": lambda: dg.map_sum(odd, TERMS[1:6], X, grainsize=8).compute(),
    "gradient": lambda: dg.grad(lambda x: dg.map_sum(odd, TERMS, x, grainsize=8)[0])(X),
    "the last of a gradient": lambda: dg.vjp(
        lambda x: dg.map_sum(odd, TERMS[1:6], x, grainsize=8), X
    ),
    "placed": lambda: dg.vjp(lambda x: dg.map_sum(odd, dg.place(TERMS, 4), x), X),
}
TERMS = list(map(float, range(8)))


@pytest.mark.parametrize("name", SUMS)
def test_a_term_that_is_not_like_the_others_is_named(name):
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match="one structure") as e:
        SUMS[name]()
    number = 4 if "last" in name else 5
    assert f"model 'odd', item {number}, called with (5.0, float64[4])" in e.value.__notes__[0]


@pytest.mark.parametrize("count", [8, 40])
def test_terms_of_different_tasks_that_are_not_alike_name_the_sum_and_the_item(count):
    terms = [5.0 if n >= count - 3 else 1.0 for n in range(count)]
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match="one structure") as e:
        dg.map_sum(odd, terms, X, grainsize=1).compute()
    assert f"in the sum over 'odd', where item {count - 3} is not" in e.value.__notes__[0]


def test_nodes_that_are_not_alike_are_named():
    nodes = [dg.delayed(odd, name=f"part {n}")(float(n), dg.variable(X)) for n in range(7)]
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match="one structure") as e:
        dg.sum(nodes).compute()
    assert "in the sum over 'sum', where 'part 5' is not" in e.value.__notes__[0]
