"""The tasks of a block, as plain NumPy: no Dask is needed for them."""

import pickle

import autograd
import autograd.numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from policies import Never

import daskgrad as dg
from daskgrad.models.accumulation import add_cotangents
from daskgrad.models.captured import Gradient
from daskgrad.models.determinism import NondeterministicModelError
from daskgrad.models.tracing import Active
from daskgrad.models.travel.policy import sent
from daskgrad.sums.adding import add_captured
from daskgrad.sums.block_pullback import Terms
from daskgrad.sums.block_tasks import (
    Summand,
    capture_block,
    evaluate_block,
    pull_back_block,
    pull_back_sum,
)
from daskgrad.sums.item_sum import ReductionNode
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

    def __init__(self, fun, items=ITEMS, first=0, keep="auto"):
        node = dg.map_sum(dg.delayed(fun, keep=keep), items, dg.variable(X))
        assert isinstance(node, ReductionNode)
        self.model, self.first, self.items = node.model, first, items
        self.sum = Summand(node.call, (Active(1, watched=False),))

    def evaluate(self):
        return evaluate_block(self.model, self.sum, self.first, [X], self.items)

    def capture(self):
        return capture_block(self.model, self.sum, self.first, [X], self.items)

    def pull_back(self, captured, cotangent):
        return pull_back_block(
            captured,
            cotangent,
            self.model,
            self.sum,
            self.first,
            [X],
            captured.value,
            self.items,
        )


@pytest.mark.parametrize("keep", ["auto", "tape", "recompute"])
@pytest.mark.parametrize("fun", [term, wave])
def test_a_block_is_the_plain_loop(fun, keep):
    block = Block(fun, keep=keep)
    captured = block.capture()
    plain = sum([fun(item, X) for item in ITEMS])
    assert_allclose(captured.value, plain, rtol=1e-15)
    assert_array_equal(block.evaluate(), captured.value)
    cotangent = np.ones(np.shape(plain)) * 0.7
    pulled = block.pull_back(captured, Cotangent((cotangent[()],)))
    right = autograd.grad(lambda x: np.sum(cotangent * sum([fun(item, x) for item in ITEMS])))(X)
    assert_allclose(pulled.leaves[0], right, rtol=1e-14)


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


def test_a_block_that_returns_another_value_when_it_is_traced_again_is_an_error():
    calls = []

    def changing(item, x):
        calls.append(item)
        return x * len(calls)

    block = Block(changing)
    moved = pickle.loads(pickle.dumps(TaskFunction(block.capture, sent(Never()))()))
    with pytest.raises(NondeterministicModelError, match="'changing' is not deterministic"):
        block.pull_back(moved, Cotangent((np.ones(4),)))


def test_blocks_of_scalars_are_added_to_the_bits_of_one_block():
    whole = Block(term, ITEMS).capture()
    blocks = [Block(term, ITEMS[n : n + 2], n).capture() for n in (0, 2, 4)]
    total = add_captured(blocks)
    assert total.value == whole.value
    assert_array_equal(total.pullback.leaves[0], whole.pullback.leaves[0])
    pulled = pull_back_sum(total, Cotangent((np.float64(3.0),)), Block(term).model)
    assert_array_equal(pulled.leaves[0], 3.0 * whole.pullback.leaves[0])


def test_blocks_of_arrays_have_no_gradient():
    with pytest.raises(TypeError, match=r"its terms are float64\[4\]"):
        add_captured([Block(wave).capture()])


def test_terms_of_two_kinds_are_an_error():
    with pytest.raises((TypeError, ValueError), match=r"one kind|one structure and shape"):
        Block(lambda item, x: x * item if item > 1 else np.sum(x)).capture()
    with pytest.raises(TypeError, match=r"of the same kind: 3 of 5 .* one real number"):
        Block(lambda item, x: np.sum(x) * (1j if item > 1 else 1.0)).capture()


def test_an_error_names_the_item_by_its_place_in_the_whole():
    def failing(item, x):
        raise ArithmeticError("no")

    block = Block(failing, first=40)
    for task, stage in ((block.evaluate, "value"), (block.capture, "forward")):
        with pytest.raises(ArithmeticError) as caught:
            task()
        (note,) = caught.value.__notes__
        assert f"in the {stage} pass of model 'failing', item 40, called with (0.3" in note


# ------------------------------------------------------------------------------------ adding


def test_adding_changes_no_cotangent_that_was_handed_in():
    terms = [Cotangent((X * n, None)) for n in range(1, 5)]
    before = [term.leaves[0].copy() for term in terms]
    total = add_cotangents(terms, (True,) * 4)
    assert_allclose(total.leaves[0], 10.0 * X)
    assert total.leaves[1] is None
    for term, leaf in zip(terms, before, strict=True):
        assert_array_equal(term.leaves[0], leaf)
    assert not any(np.shares_memory(total.leaves[0], term.leaves[0]) for term in terms)


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


def test_values_are_added_leaf_by_leaf():
    first, second = {"a": X, "b": (1.0, np.float32(2.0))}, {"a": X, "b": (2.0, np.float32(1.0))}
    total = add_values(first, second)
    assert_array_equal(total["a"], 2.0 * X)
    assert total["b"] == (3.0, 3.0)
    assert total["b"][1].dtype == np.float32
    assert_array_equal(first["a"], X)


def test_partial_sums_of_two_dtypes_are_added_in_the_wider_one():
    total = pairwise([np.float32(X), np.float32(X), X, X], add_values)
    assert_array_equal(total, np.float32(X) + np.float32(X) + (X + X))
    assert total.dtype == np.float64


@pytest.mark.parametrize(
    "other", [{"a": X}, X[:2], X[None], [X], 1.0], ids=["dict", "short", "rows", "list", "number"]
)
def test_values_of_other_structures_and_shapes_are_not_added(other):
    with pytest.raises(ValueError, match="one structure and shape"):
        add_values(X, other)


def test_strings_are_not_added():
    with pytest.raises(TypeError, match="must be numbers"):
        add_values({"name": "a"}, {"name": "b"})
