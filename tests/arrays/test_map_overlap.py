"""map_overlap: values and derivatives are those of the undivided domain, however it is cut."""

import itertools

import autograd
import autograd.numpy as np
import dask
import numpy
import pytest
from autograd.misc import flatten
from comparisons import assert_close, assert_same
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from optree import tree_leaves, tree_map
from probes import peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values.descriptions import NondeterministicModelError

SHAPE = (26, 21)
GENERATOR = numpy.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=SHAPE)
CUTS = [(1, 1), (2, 2), (3, 2), ((9, 8, 9), (8, 13))]

# ------------------------------------------------------------------- two programs, and a cut of 1


def at(array, i, j, depth):
    """The entries that are i and j away from those of the block."""
    rows, columns = array.shape
    return array[depth + i : rows - depth + i, depth + j : columns - depth + j]


def flow(state, diffusivity, speed):
    def flux(i, j):
        here, there = at(diffusivity, 0, 0, 1), at(diffusivity, i, j, 1)
        return 0.5 * (here + there) * (at(state, i, j, 1) - at(state, 0, 0, 1))

    around = flux(1, 0) + flux(-1, 0) + flux(0, 1) + flux(0, -1)
    corners = flux(1, 1) - flux(1, -1) - flux(-1, 1) + flux(-1, -1)
    slope = at(state, 1, 0, 1) - at(state, -1, 0, 1)
    return (
        at(state, 0, 0, 1)
        + 0.05 * (around + 0.3 * corners)
        - 0.02 * speed * slope * at(state, 0, 0, 1)
    )


def wave(state, velocity, damping):
    u, before = state["u"], state["before"]

    def second(i, j):
        here = -30.0 * at(u, 0, 0, 2) + 16.0 * (at(u, i, j, 2) + at(u, -i, -j, 2))
        return (here - at(u, 2 * i, 2 * j, 2) - at(u, -2 * i, -2 * j, 2)) / 12.0

    inner = at(u, 0, 0, 2)
    push = 0.1 * at(velocity, 0, 0, 2) ** 2 * (second(1, 0) + second(0, 1))
    return {"u": (2.0 - damping) * inner - at(before, 0, 0, 2) + push, "before": inner}


def loss_of(state, weights):
    u = state["u"] if isinstance(state, dict) else state
    return np.sum(u**2 * weights) + np.sum(np.sin(u))


MEDIUM = GENERATOR.uniform(0.5, 1.0, SHAPE)
PROGRAMS = {  # the step, its depth, and where to differentiate
    "flow": (flow, 1, {"state": GENERATOR.normal(size=SHAPE), "medium": MEDIUM, "number": 0.7}),
    "wave": (
        wave,
        2,
        {
            "state": {
                "u": GENERATOR.normal(size=SHAPE),
                "before": GENERATOR.normal(size=SHAPE),
            },
            "medium": MEDIUM,
            "number": 0.01,
        },
    ),
}
BOUNDARIES = {
    "periodic": "periodic",
    "reflect": "reflect",
    "nearest": "nearest",
    "constant": 0.5,
    "mixed": {0: ("nearest", 2.0), 1: "periodic"},
    "all different": {0: (1.0, "reflect"), 1: ("reflect", "nearest")},
}


def both_sides(boundary):
    axes = [boundary.get(n) for n in (0, 1)] if isinstance(boundary, dict) else [boundary] * 2
    return [side if isinstance(side, tuple) else (side, side) for side in axes]


def padded(array, sides, depths):
    """As NumPy's ``pad`` does it, of boxes."""
    for axis, ((low, high), depth) in enumerate(zip(sides, depths, strict=True)):
        ends = [outside(array, axis, side, depth, way) for side, way in ((low, -1), (high, 1))]
        array = np.concatenate([ends[0], array, ends[1]], axis)
    return array


def outside(array, axis, side, depth, way):
    size = array.shape[axis]
    inside = {  # the entries that stand beyond the boundary
        "periodic": range(size - depth, size) if way < 0 else range(depth),
        "reflect": range(depth)[::-1] if way < 0 else range(size - depth, size)[::-1],
    }
    places = inside.get(side, [0 if way < 0 else size - 1] * depth)
    entries = array[(slice(None),) * axis + (list(places),)]
    return entries if isinstance(side, str) else 0.0 * entries + side


def undivided(name, boundary, steps):
    step, depth, point = PROGRAMS[name]
    sides = both_sides(boundary)
    of_medium = [tuple(["nearest" if not isinstance(s, str) else s for s in p]) for p in sides]

    def whole(point):
        state = point["state"]
        for _ in range(steps):
            if name == "wave":
                around = {key: padded(state[key], sides, [depth] * 2) for key in state}
            else:
                around = padded(state, sides, [depth] * 2)
            state = step(around, padded(point["medium"], of_medium, [depth] * 2), point["number"])
        return loss_of(state, WEIGHTS)

    vector, unflatten = flatten(point)
    gradient = unflatten(autograd.grad(lambda vector: whole(unflatten(vector)))(vector))
    return whole(point), gradient


def divided(name, boundary, steps, cut=(3, 2), fuse=1, checkpoints=None):
    step, depth, _ = PROGRAMS[name]

    def program(point):
        grids = dg.grid(point["state"], cut), dg.grid(point["medium"], cut)
        options = {"depth": depth, "boundary": boundary, "steps": steps, "fuse": fuse}
        options["checkpoints"] = checkpoints
        last = dg.map_overlap(step, *grids, point["number"], **options)
        return dg.sum(last.map(loss_of, dg.grid(WEIGHTS, cut)))

    return program


# ------------------------------------------------------------------------------ first derivatives

SHORT = [
    ("flow", "periodic"),
    ("wave", "periodic"),
    ("flow", "constant"),
    ("wave", "all different"),
]


@in_short(("name", "boundary"), list(itertools.product(PROGRAMS, BOUNDARIES)), *SHORT)
def test_value_and_gradients_are_those_of_the_undivided_domain(name, boundary, synchronous):
    bound = BOUNDARIES[boundary]
    for steps, fuses in ((1, [4]), (5, [1, 2, 3, 4])):
        expected = undivided(name, bound, steps)
        for cut, fuse in itertools.product(CUTS, fuses):
            result = dg.value_and_grad(divided(name, bound, steps, cut, fuse))(PROGRAMS[name][2])
            assert_close(result, expected, 1e-13)


def test_the_bits_are_the_same_on_every_scheduler(every_scheduler):
    program, point = divided("flow", "reflect", 3, (2, 2), 2), PROGRAMS["flow"][2]
    results = every_scheduler(lambda: dg.value_and_grad(program)(point))
    for result in results.values():
        assert_same(result, results["sync"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_grid_may_be_the_argument(name, synchronous):
    step, depth, point = PROGRAMS[name]
    cut = (2, 3)

    def program(grids):
        last = dg.map_overlap(step, grids["state"], grids["medium"], 0.1, depth=depth, steps=2)
        return dg.sum(last.map(loss_of, dg.grid(WEIGHTS, cut)))

    grids = {key: dg.grid(point[key], cut) for key in ("state", "medium")}
    value, gradient = dg.value_and_grad(program)(grids)
    whole = divided(name, "periodic", 2, cut)
    expected = dg.value_and_grad(
        lambda p: whole({"state": p["state"], "medium": p["medium"], "number": 0.1})
    )({key: point[key] for key in grids})
    assert isinstance(gradient["medium"], dg.Grid)
    assert gradient["state"].chunks == grids["state"].chunks
    assert_same((value, {key: gradient[key].to_array() for key in grids}), expected)


def test_only_what_is_asked_for_is_differentiated(synchronous):
    program, point = divided("wave", "nearest", 3), PROGRAMS["wave"][2]
    whole = dg.grad(program)(point)
    for key in point:
        part = dg.grad(lambda value, key=key: program({**point, key: value}))(point[key])
        assert_same(part, whole[key])


def test_a_loss_of_one_block_needs_its_neighbours_alone(synchronous):
    def corner(u):
        last = dg.map_overlap(flow, dg.grid(u, (3, 3)), dg.grid(MEDIUM, (3, 3)), 0.7, boundary=0)
        return dg.delayed(np.sum)(last.blocks[0])

    gradient = dg.grad(corner)(PROGRAMS["flow"][2]["state"])
    assert numpy.all(gradient[:10, :8] != 0.0)
    assert not gradient[10:].any()
    assert not gradient[:, 8:].any()


# ------------------------------------------------------------------------------ other derivatives


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("boundary", ["periodic", "constant"])
def test_tangents_and_hessian_products(name, boundary, synchronous, random):
    program = divided(name, BOUNDARIES[boundary], 3, (2, 2), 2)
    point = PROGRAMS[name][2]
    tangent = tree_map(lambda leaf: random.normal(size=numpy.shape(leaf)), point)
    gradient = dg.grad(program)
    slope = sum(map(numpy.vdot, tree_leaves(gradient(point)), tree_leaves(tangent)))
    ahead = gradient(tree_map(lambda p, t: p + 1e-5 * t, point, tangent))
    behind = gradient(tree_map(lambda p, t: p - 1e-5 * t, point, tangent))
    _, pushed = dg.jvp(program, (point,), (tangent,))
    assert abs(pushed - slope) <= 1e-12 * max(1.0, abs(slope))
    _, (product,) = dg.hvp(program, (point,), (tangent,))
    assert_close(product, tree_map(lambda up, down: (up - down) / 2e-5, ahead, behind), 1e-7)


# ------------------------------------------------------------------------------------- grids


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_grids_are_collections(scheduler):
    array = PROGRAMS["flow"][2]["state"]
    cut = dg.grid(array, (2, 3))
    assert dg.grid(cut) is cut
    assert_array_equal(cut.to_array(), array)
    assert cut.shape == SHAPE
    assert repr(cut) == "<Grid of shape (26, 21), 2 x 3 blocks>"
    last = dg.map_overlap(flow, cut, dg.grid(MEDIUM, (2, 3)), 0.7)
    assert_array_equal(dask.compute(last)[0].to_array(), last.compute().to_array())
    kept = last.persist()
    assert_array_equal(kept.compute().to_array(), last.compute().to_array())
    again = dg.map_overlap(flow, kept, dg.grid(MEDIUM, (2, 3)), 0.7).compute().to_array()
    two = dg.map_overlap(flow, cut, dg.grid(MEDIUM, (2, 3)), 0.7, steps=2).compute().to_array()
    assert_array_equal(again, two)


@pytest.mark.parametrize("depths", [(2, 1), (0, 2)])
@pytest.mark.parametrize("boundary", ["periodic", "all different"])
def test_depths_may_differ_from_axis_to_axis(depths, boundary, synchronous):
    u, bound = PROGRAMS["flow"][2]["state"], BOUNDARIES[boundary]
    (rows, columns), sides = depths, both_sides(bound)

    def corners(frame):
        height, width = frame.shape
        low, high = frame[: height - 2 * rows, : width - 2 * columns], frame[2 * rows :]
        return np.sin(low) * high[:, 2 * columns :]

    def program(u):
        last = dg.map_overlap(corners, dg.grid(u, (3, 2)), depth=depths, boundary=bound, steps=2)
        return dg.sum(last.map(loss_of, dg.grid(WEIGHTS, (3, 2))))

    def whole(u):
        for _ in range(2):
            u = corners(padded(u, sides, depths))
        return loss_of(u, WEIGHTS)

    assert_close(dg.value_and_grad(program)(u), (whole(u), autograd.grad(whole)(u)), 1e-13)


def test_arrays_may_have_further_axes(synchronous):
    """A vector field on a grid of one axis."""

    def smooth(padded):
        return (padded[2:] + padded[:-2]) / 2.0

    array = GENERATOR.normal(size=(9, 3))
    result = dg.map_overlap(smooth, dg.grid(array, 3), steps=2, fuse=2).compute().to_array()
    expected = array
    for _ in range(2):
        expected = (numpy.roll(expected, 1, 0) + numpy.roll(expected, -1, 0)) / 2.0
    assert_allclose(result, expected, rtol=1e-14)


# --------------------------------------------------------------------------------- checkpoints


def test_the_bits_are_those_of_keeping_all_states(every_scheduler, random):
    """Where one state of four is dropped."""

    def derivatives(name, checkpoints):
        program, point = divided(name, "nearest", 4, (2, 1), 1, checkpoints), PROGRAMS[name][2]
        value, pullback = dg.vjp(program, point)
        return program, point, [value, pullback(1.0), dg.value_and_grad(program)(point)]

    with dask.config.set(scheduler="sync"):
        for name in PROGRAMS:
            (first, point, kept), (second, _, dropped) = [derivatives(name, n) for n in (None, 2)]
            assert_same(dropped, kept)
            tangent = tree_map(lambda leaf: random.normal(size=numpy.shape(leaf)), point)
            products = [dg.hvp(program, (point,), (tangent,)) for program in (first, second)]
            assert_same(*products)
    for *_, result in every_scheduler(lambda: derivatives(name, 2)).values():
        assert_same(result, kept)


@pytest.mark.parametrize(("checkpoints", "again"), [(None, 0), (1, 0), (3, 4), (6, 0), (9, 0)])
def test_states_are_computed_again_but_those_of_the_last_segment(checkpoints, again, synchronous):
    """Of six exchanges, of which the backward task of each runs it once more."""
    runs = []

    def counted(padded):
        runs.append(None)
        return padded[2:] - padded[:-2]

    def program(u):
        last = dg.map_overlap(counted, dg.grid(u, 1), steps=12, fuse=2, checkpoints=checkpoints)
        return dg.sum(last.map(np.sum))

    dg.grad(program)(numpy.ones(8))
    assert len(runs) == 12 + again + 6 + 12  # forward, again, and backward: states and tapes


def mean_of_four(padded):
    return (at(padded, 1, 0, 1) + at(padded, -1, 0, 1) + at(padded, 0, 1, 1)) / 3.0


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_memory_is_that_of_the_states_that_are_there(scheduler):
    start = numpy.full((256, 256), 0.5)  # half a megabyte
    steps = 36

    def program(u, kept):
        last = dg.map_overlap(mean_of_four, dg.grid(u, (2, 1)), steps=steps, checkpoints=kept)
        return dg.sum(last.map(np.sum))

    def peak(kept):
        gradient = dg.value_and_grad(lambda u: program(u, kept))
        with dask.config.set(scheduler=scheduler, num_workers=2):
            return peak_bytes(lambda: gradient(start)) / start.nbytes

    assert peak(6) < 6 + 6 + 15
    assert peak(None) > steps  # what keeps all is seen as such


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("options", [{"steps": 6, "checkpoints": 2}, {"steps": 2, "fuse": 2}])
def test_a_step_that_is_not_deterministic_is_an_error(options, synchronous):
    def noisy(padded):
        return padded[1:-1] + numpy.random.default_rng().normal(size=len(padded) - 2)

    def program(u):
        return dg.sum(dg.map_overlap(noisy, dg.grid(u, 2), **options).map(np.sum))

    with pytest.raises(NondeterministicModelError, match="is not deterministic"):
        dg.grad(program)(numpy.ones(8))


def test_errors_name_the_block_and_the_step(synchronous):
    def breaks(padded, marks):
        if marks.min() < 0:
            raise ZeroDivisionError("broken")
        return padded[1:-1]

    marks = numpy.ones(9)
    marks[4] = -1.0

    def program(u):
        grids = dg.grid(u, 3), dg.grid(marks, 3)
        return dg.sum(dg.map_overlap(breaks, *grids, steps=2, depth=1).map(np.sum))

    with pytest.raises(ZeroDivisionError) as caught:
        dg.grad(program)(numpy.ones(9))
    note = "in the forward pass of model 'breaks', block (1,), step 0, called with (float64[5]"
    assert any(note in line for line in caught.value.__notes__)
