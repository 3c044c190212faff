"""The tasks of a block, as plain NumPy: no Dask is needed for them."""

import pickle

import autograd.numpy as np
import pytest
from numpy.testing import assert_array_equal
from policies import Never

import daskgrad as dg
from daskgrad.models.accumulation import add_cotangents
from daskgrad.models.captured import Gradient
from daskgrad.models.determinism import NondeterministicModelError
from daskgrad.models.tracing import Active
from daskgrad.models.travel.policy import sent
from daskgrad.sums.adding import add_captured
from daskgrad.sums.block_pullback import Terms
from daskgrad.sums.block_tasks import Summand, capture_block, pull_back_block
from daskgrad.tasks.task_functions import TaskFunction
from daskgrad.values.addition import add_values
from daskgrad.values.cotangents import Cotangent, Seed
from daskgrad.values.summation import pairwise

X = np.linspace(0.2, 1.3, 4)
ITEMS = [0.3, -1.2, 2.5, 0.7, 1.9]


def term(item, x):
    return np.sum(np.sin(item * x))


def wave(item, x):
    return np.sin(item * x)


class Block:
    """The tasks of a block of the sum of ``fun(item, x)``."""

    def __init__(self, fun):
        node = dg.map_sum(dg.delayed(fun), ITEMS, dg.variable(X))
        self.model, self.sum = node.model, Summand(node.call, (Active(1, watched=False),))

    def capture(self):
        return capture_block(self.model, self.sum, 0, [X], ITEMS)

    def pull_back(self, captured, cotangent):
        rest = (self.model, self.sum, 0, [X], captured.value, ITEMS)
        return pull_back_block(captured, cotangent, *rest)


def test_scalar_terms_keep_their_gradient_and_arrays_their_pullbacks():
    scalars, arrays = Block(term).capture(), Block(wave).capture()
    assert isinstance(scalars.pullback, Gradient)
    assert scalars.pullback.leaves[0].nbytes == X.nbytes
    assert isinstance(arrays.pullback, Terms)
    assert arrays.__sizeof__() > len(ITEMS) * X.nbytes > scalars.pullback.__sizeof__()


def test_a_gradient_moves_and_tapes_are_traced_again():
    for fun, is_empty in ((term, False), (wave, True)):
        block = Block(fun)
        captured = TaskFunction(block.capture, sent(Never()))()
        moved = pickle.loads(pickle.dumps(captured))
        assert getattr(moved.pullback, "is_empty", False) is is_empty
        cotangent = Cotangent((0.7 * np.ones(np.shape(captured.value))[()],))
        assert_array_equal(
            block.pull_back(moved, cotangent).leaves[0],
            block.pull_back(captured, cotangent).leaves[0],
        )


def test_terms_that_are_not_one_kind_are_an_error():
    with pytest.raises(TypeError, match=r"its terms are float64\[4\]"):
        add_captured([Block(wave).capture()])
    with pytest.raises((TypeError, ValueError), match=r"one kind|one structure and shape"):
        Block(lambda item, x: x * item if item > 1 else np.sum(x)).capture()
    with pytest.raises(TypeError, match=r"of the same kind: 3 of 5 .* one real number"):
        Block(lambda item, x: np.sum(x) * (1j if item > 1 else 1.0)).capture()


# ------------------------------------------------------------------------------------ adding


@pytest.mark.parametrize("order", [1, -1])
def test_seeds_are_added_to_whatever_else_arrives(order):
    """A seed is a number whose dtype is not known yet; ``None`` is a symbolic zero."""
    number, nothing = Cotangent((np.float32(2.5),)), Cotangent((None,))
    seed = Seed(3)
    assert add_cotangents([seed, Seed()], (False, False)).times == 4
    (total,) = add_cotangents([seed, number][::order], (False, True)).leaves
    assert total == 5.5
    assert total.dtype == np.float32
    assert add_cotangents([nothing, nothing], (True, True)).leaves == (None,)
    (total,) = add_cotangents([seed, nothing, number][::order], (False, True, True)).leaves
    assert total == 5.5
    total = add_cotangents([seed, nothing][::order], (False, True))
    assert isinstance(total, Seed)
    assert total.times == 3


def test_consumers_that_saw_other_values_of_one_node_are_an_error():
    first, second = (0.295,), (0.681,)
    terms = [Cotangent((X,), first), Cotangent((X,), second)]
    with pytest.raises(NondeterministicModelError, match="saw different values"):
        add_cotangents(terms, (True, True))
    add_cotangents(terms, (True, False))


def test_values_are_added_leaf_by_leaf_in_the_wider_dtype():
    first, second = {"a": X, "b": (1.0, np.float32(2.0))}, {"a": X, "b": (2.0, np.float32(1.0))}
    total = add_values(first, second)
    assert_array_equal(total["a"], 2.0 * X)
    assert total["b"] == (3.0, 3.0)
    assert total["b"][1].dtype == np.float32
    assert_array_equal(first["a"], X)
    total = pairwise([np.float32(X), np.float32(X), X, X], add_values)
    assert_array_equal(total, np.float32(X) + np.float32(X) + (X + X))
    assert total.dtype == np.float64
