"""Optimisers: each rule beside its formula, entry by entry; rows beside a dense optimiser of each
row's own; states that are saved and loaded.
"""

import math

import numpy as np
import pytest
from probes import peak_bytes

import daskgrad as dg
from daskgrad.optim import SGD, Adagrad, Adam, AdamW, Momentum, Nesterov, RMSprop

ALL = [SGD, Momentum, Nesterov, Adagrad, RMSprop, Adam, AdamW]
SHAPE = (6, 3)


def gradients(steps, shape=SHAPE, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=(steps, *shape)).astype(dtype)


def run(opt, x, many):
    params = {"w": np.array(x)}
    state = opt.init(params)
    for g in many:
        opt.update(params, {"w": g}, state)
    return params["w"], state


# ------------------------------------------------------------------------------------ formulas


def by_hand(opt, x, gs):
    """One entry, by the formulas of the papers, in Python's numbers."""
    m = v = s = 0.0
    for t, g in enumerate(gs, 1):
        if type(opt) is SGD:
            x -= opt.rate * g
        elif isinstance(opt, Momentum):
            v = opt.momentum * v + g
            x -= opt.rate * (g + opt.momentum * v if isinstance(opt, Nesterov) else v)
        elif type(opt) is Adagrad:
            s += g**2
            x -= opt.rate * g / (math.sqrt(s) + opt.eps)
        elif type(opt) is RMSprop:
            s = opt.decay * s + (1 - opt.decay) * g**2
            x -= opt.rate * g / (math.sqrt(s) + opt.eps)
        else:
            if type(opt) is AdamW:
                x -= opt.rate * opt.decay * x
            m = opt.b1 * m + (1 - opt.b1) * g
            v = opt.b2 * v + (1 - opt.b2) * g**2
            step = opt.rate * m / (1 - opt.b1**t)
            x -= step / (math.sqrt(v / (1 - opt.b2**t)) + opt.eps)
    return x


@pytest.mark.parametrize("kind", ALL)
def test_a_rule_is_its_formula(kind):
    opt, many = kind(rate=0.03), gradients(25)
    found, _ = run(opt, np.ones(SHAPE), many)
    wanted = [[by_hand(opt, 1.0, many[:, i, j]) for j in range(3)] for i in range(6)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_single_precision_stays(kind):
    found, state = run(kind(), np.ones(SHAPE, np.float32), gradients(3, dtype=np.float32))
    assert found.dtype == np.float32
    assert {state[f"{slot}['w']"].dtype for slot in kind.slots} <= {np.dtype(np.float32)}
    rate = kind().rate
    same, _ = run(
        kind(np.float64(rate)), np.ones(SHAPE, np.float32), gradients(3, dtype=np.float32)
    )
    np.testing.assert_array_equal(same, found)


# ------------------------------------------------------------------------------------ rows


def some_rows(dense, chosen, axis=0):
    """The dense gradient cut down to some rows or columns, as rows."""
    return dg.Rows(dense.shape, (axis,), chosen, np.moveaxis(dense, axis, 0)[chosen])


def taken_rows(many, axis=0):
    return [some_rows(g, np.array(c, int), axis) for g, c in zip(many, CHOSEN, strict=True)]


def require_equal(params, state, other, other_state):
    np.testing.assert_array_equal(params, other)
    for key in state:
        np.testing.assert_array_equal(state[key], other_state[key])


CHOSEN = [[0, 2], [2], [5, 0], [1, 2, 3], [], [2, 5]]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ALL)
def test_each_row_has_a_dense_optimiser_of_its_own(kind, axis):
    many = gradients(len(CHOSEN), (6, 6))
    params, _ = run(kind(rate=0.1), np.ones((6, 6)), taken_rows(many, axis))
    for row in range(6):
        its = [np.take(g, row, axis) for g, c in zip(many, CHOSEN, strict=True) if row in c]
        alone, _ = run(kind(rate=0.1), np.ones(6), its)
        np.testing.assert_array_equal(np.take(params, row, axis), alone)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ALL)
def test_long_columns_have_the_bits_of_rows(kind, dtype, monkeypatch):
    """In large arrays their entries are changed where they stand."""
    monkeypatch.setattr("daskgrad.autodiff.values.rows.LARGE", 0)
    many = gradients(len(CHOSEN), (600, 40), dtype)
    start = np.random.default_rng(1).normal(size=(600, 40)).astype(dtype)
    params, state = run(kind(rate=0.1), start, taken_rows(many, 1))
    other, expected = run(kind(rate=0.1), start.T.copy(), taken_rows([g.T for g in many]))
    require_equal(params.T, {key: state[key].T for key in state}, other, expected)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ALL)
def test_many_rows_are_updated_in_blocks_with_the_same_bits(kind, axis, monkeypatch):
    taken = taken_rows(gradients(len(CHOSEN), (6, 6)), axis)
    expected = run(kind(rate=0.1), np.ones((6, 6)), taken)
    sizes, rule = [], kind.rule

    def noting(self, g, *rest):
        sizes.append(len(g))
        return rule(self, g, *rest)

    monkeypatch.setattr("daskgrad.optim.optimiser.BLOCK", 2 * 6 * 8)
    monkeypatch.setattr(kind, "rule", noting)
    require_equal(*run(kind(rate=0.1), np.ones((6, 6)), taken), *expected)
    assert sizes == [2, 1, 2, 2, 1, 0, 2]


def test_an_update_of_many_rows_makes_no_arrays_of_their_size():
    w, opt = np.ones((4096, 1024)), Adam()
    state, rows = opt.init(w), some_rows(w, np.arange(0, len(w), 2))
    opt.update(w, rows, state)  # also makes room for counts
    assert peak_bytes(lambda: opt.update(w, rows, state)) < rows.values.nbytes / 4


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_rows_columns_and_dense_steps_count_each_entry(kind):
    """Each entry is at its own step, whatever the gradients had been."""
    many = gradients(4, (4, 5))
    entries = dg.Rows((4, 5), (0, 1), [7, 3], [many[3][1, 2], many[3][0, 3]])
    taken = [some_rows(many[0], [1, 3]), many[1], some_rows(many[2], [2], 1), entries]
    masks = [np.zeros((4, 5), bool) for _ in range(4)]
    masks[0][[1, 3]] = masks[1][...] = masks[2][:, 2] = True
    masks[3][1, 2] = masks[3][0, 3] = True
    found, _ = run(kind(rate=0.1), np.ones((4, 5)), taken)
    for i, j in np.ndindex(4, 5):
        own = [np.array([g[i, j]]) for g, mask in zip(many, masks, strict=True) if mask[i, j]]
        assert found[i, j] == run(kind(rate=0.1), np.ones(1), own)[0][0]


def test_a_global_bias_counts_all_steps():
    many = gradients(3)
    taken = [some_rows(many[0], [1]), some_rows(many[1], [1]), some_rows(many[2], [4])]
    found, _ = run(Adam(rate=0.1, eps=0.0, bias="global"), np.zeros(SHAPE), taken)
    lengths = 0.1 * (0.1 / (1 - 0.9**3)) / math.sqrt(0.001 / (1 - 0.999**3))
    np.testing.assert_allclose(found[4], -np.sign(many[2][4]) * lengths)
    found, _ = run(Adam(rate=0.1, eps=0.0), np.zeros(SHAPE), taken)
    np.testing.assert_allclose(found[4], -np.sign(many[2][4]) * 0.1)


def test_repeated_indices_are_added_before_the_step():
    g = np.ones((1, 3))
    once, _ = run(Adam(), np.zeros(SHAPE), [dg.Rows(SHAPE, (0,), [4], 2 * g)])
    twice, _ = run(Adam(), np.zeros(SHAPE), [dg.Rows(SHAPE, (0,), [4, 4], np.ones((2, 3)))])
    np.testing.assert_array_equal(once, twice)


# ------------------------------------------------------------------------------------ states


@pytest.mark.parametrize("kind", ALL)
def test_a_state_is_saved_and_loaded(kind, tmp_path):
    opt, rest = kind(), {"label": "a", "n": 3}
    params = {"w": np.ones(SHAPE), "more": [np.zeros(2), np.ones(())], **rest}
    trees = [{"w": g, "more": [g[0, :2], g[1, 1]], "label": None, "n": None} for g in gradients(6)]
    state = opt.init(params)
    for tree in trees[:3]:
        opt.update(params, tree, state)
    np.savez(tmp_path / "state.npz", **state)
    again = {"w": params["w"].copy(), "more": [x.copy() for x in params["more"]], **rest}
    loaded = dict(np.load(tmp_path / "state.npz"))
    for tree in trees[3:]:
        opt.update(params, tree, state)
        opt.update(again, tree, loaded)
    np.testing.assert_array_equal(params["w"], again["w"])
    np.testing.assert_array_equal(params["more"][1], again["more"][1])
    assert int(loaded["step"]) == 6


def test_arrays_are_changed_in_place_and_a_leaf_without_gradient_stays():
    params, opt = {"w": np.ones(SHAPE), "v": np.ones(2)}, Adam()
    before, state = params["w"], opt.init(params)
    kept = state["m['w']"]
    opt.update(params, {"w": np.ones(SHAPE), "v": None}, state)
    assert params["w"] is before
    assert before[0, 0] != 1.0
    assert state["m['w']"] is kept
    assert kept[0, 0] != 0.0
    assert (params["v"] == 1.0).all()
    assert state["steps['v']"] == [0]


# ------------------------------------------------------------------------------------ errors

W = {"w": np.ones(SHAPE)}


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ({"v": np.ones(SHAPE)}, "gradients have the structure"),
        ({"w": np.ones(3)}, r"the gradient of params\['w'\], .*, must be .* found float64"),
        ({"w": np.ones(SHAPE, int)}, "real floating-point array"),
        ({"w": dg.Rows((5, 3), (0,), [1], np.ones((1, 3)))}, r"found Rows"),
    ],
)
def test_gradients_that_do_not_fit_change_nothing(gradients, message):
    params = {"w": np.ones(SHAPE)}
    opt = Adam()
    state = opt.init(params)
    with pytest.raises(ValueError, match=message):
        opt.update(params, gradients, state)
    assert (params["w"] == 1.0).all()
    assert state["step"] == 0


def test_a_state_of_other_parameters():
    good = Adam().init(W)
    read_only = {**good, "m['w']": np.broadcast_to(0.0, SHAPE)}
    for state in (
        {},
        Adam().init({"w": np.ones(3)}),
        Adam(bias="global").init(W),
        {**good, "m['w']": [0.0]},
        {**good, "steps['w']": np.zeros(5, np.int32)},
        read_only,
    ):
        params = {"w": np.ones(SHAPE)}
        with pytest.raises(ValueError, match="the state needs a writeable array"):
            Adam().update(params, W, state)
        assert (params["w"] == 1.0).all()
        assert state.get("step", 0) == 0
    with pytest.raises(TypeError, match="must be a dict of arrays"):
        Adam().update(W, W, None)


# ------------------------------------------------------------------------ schedules, clipping


def test_schedules():
    optim = dg.optim
    assert optim.exponential(0.1, 0.5, every=2)(4) == pytest.approx(0.025)
    assert [optim.cosine(0.2, 10, 0.1)(n) for n in (0, 5, 10, 99)] == pytest.approx(
        [0.2, 0.15, 0.1, 0.1]
    )
    assert [optim.piecewise({0: 1.0, 3: 0.1})(n) for n in (0, 2, 3, 9)] == [1.0, 1.0, 0.1, 0.1]
    assert [optim.warm_up(0.4, 4)(n) for n in (0, 1, 3, 9)] == pytest.approx([0.1, 0.2, 0.4, 0.4])
    assert optim.warm_up(optim.piecewise({0: 1.0, 9: 0.1}), 2)(9) == 0.1
    x, state = np.zeros(1), SGD().init(np.zeros(1))
    opt = SGD(optim.piecewise({0: 1.0, 1: 10.0}))
    for _ in range(2):
        opt.update(x, np.ones(1), state)
    assert x == [-11.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_clipping_of_what_overflows(dtype):
    large = np.full(2, 1e4 if dtype is np.float16 else 1e20, dtype)
    np.testing.assert_allclose(dg.optim.clip_by_norm(large, 1.0), [0.5**0.5] * 2, rtol=2e-3)
    found = dg.optim.clip_by_norm({"a": 3.0, "b": np.float32(4)}, 1.0)
    assert found == {"a": pytest.approx(0.6), "b": pytest.approx(0.8)}


def test_clipping_is_of_all_leaves_together():
    g = {"w": np.array([3.0, 0.0]), "r": dg.Rows((5, 2), (0,), [4], [[0.0, 4.0]]), "n": None}
    assert dg.optim.norm(g) == 5.0
    assert dg.optim.clip_by_norm(g, 5.0) is g
    clipped = dg.optim.clip_by_norm(g, 1.0)
    np.testing.assert_allclose(clipped["w"], [0.6, 0.0])
    np.testing.assert_allclose(clipped["r"].values, [[0.0, 0.8]])
    assert clipped["n"] is None
    assert dg.optim.norm(clipped) == pytest.approx(1.0)
