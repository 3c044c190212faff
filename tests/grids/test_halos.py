"""Halos: frames are what a roll of the whole array shows, and adjoints are transposes."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskgrad.grids.halos import Constant, assemble, cut_edges, pad, split, unpad
from daskgrad.grids.layout import Layout, edge, frame_of

LAYOUTS = [((6,),), ((4, 3), (5,)), ((3, 4, 3), (4, 4)), ((2, 3), (3,), (2, 2))]


def framed(layout, blocks, index, widths, periodic):
    frame = frame_of(layout, index, widths, periodic)
    edges = [cut_edges(blocks[number], ways, widths) for number, ways in frame.parts]
    return frame, assemble(blocks[layout.number(index)], edges, frame)


@pytest.mark.parametrize("chunks", LAYOUTS)
@pytest.mark.parametrize("width", [1, 2])
def test_a_frame_shows_the_neighbours_corners_included(chunks, width):
    layout = Layout(chunks)
    whole = np.arange(float(np.prod(layout.shape))).reshape(layout.shape)
    blocks = [whole[layout.slices(index)] for index in layout.indices()]
    widths = (width,) * len(chunks)
    wrapped = np.pad(whole, width, mode="wrap")
    for index in layout.indices():
        _, result = framed(layout, blocks, index, widths, (True,) * len(chunks))
        at = tuple([slice(s.start, s.stop + 2 * width) for s in layout.slices(index)])
        assert_array_equal(result, wrapped[at])


@pytest.mark.parametrize("chunks", LAYOUTS)
def test_there_are_no_halos_at_the_boundary(chunks):
    layout = Layout(chunks)
    whole = np.arange(float(np.prod(layout.shape))).reshape(layout.shape)
    blocks = [whole[layout.slices(index)] for index in layout.indices()]
    for index in layout.indices():
        frame, result = framed(layout, blocks, index, (1,) * len(chunks), (False,) * len(chunks))
        slices = layout.slices(index)
        pairs = zip(slices, layout.shape, strict=True)
        at = tuple([slice(max(s.start - 1, 0), min(s.stop + 1, size)) for s, size in pairs])
        assert_array_equal(result, whole[at])
        assert_array_equal(result[frame.own], whole[slices])


@pytest.mark.parametrize("periodic", list(itertools.product([False, True], repeat=2)))
def test_to_split_is_the_adjoint_of_to_assemble(periodic, random):
    layout, widths = Layout(((3, 4, 3), (4, 5))), (2, 1)
    blocks = [random.normal(size=layout.block_shape(index)) for index in layout.indices()]
    there = back = 0.0
    totals = [np.zeros_like(block) for block in blocks]
    for index in layout.indices():
        frame, result = framed(layout, blocks, index, widths, periodic)
        cotangent = random.normal(size=result.shape)
        there += np.vdot(cotangent, result)
        (inner,), edges = split((cotangent,), frame)
        totals[layout.number(index)] += inner
        for (number, ways), strips in zip(frame.parts, edges, strict=True):
            for way, (strip,) in zip(ways, strips, strict=True):
                totals[number][edge(way, widths)] += strip
    back = sum([np.vdot(total, block) for total, block in zip(totals, blocks, strict=True)])
    assert abs(there - back) < 1e-12 * abs(there)


MODES = {"reflect": {"mode": "symmetric"}, "nearest": {"mode": "edge"}}
MODES[Constant(2.5)] = {"mode": "constant", "constant_values": 2.5}


@pytest.mark.parametrize("side", MODES)
@pytest.mark.parametrize("depth", [(1, 1), (2, 3), (0, 2)])
def test_padding_is_numpys(side, depth, random):
    array = random.normal(size=(5, 6))
    result = pad(array, ((side, side),) * 2, depth)
    assert_array_equal(result, np.pad(array, [(d, d) for d in depth], **MODES[side]))


SIDES = [None, "reflect", "nearest", Constant(2.5)]


@pytest.mark.parametrize("pair", list(itertools.product(SIDES, repeat=2)))
def test_to_unpad_is_the_adjoint_of_to_pad(pair, random):
    sides, depth = (pair, pair[::-1]), (2, 1)
    array = random.normal(size=(5, 6))
    padded = pad(array, sides, depth) - pad(np.zeros((5, 6)), sides, depth)  # the linear part
    cotangent = random.normal(size=padded.shape)
    (result,) = unpad((cotangent,), sides, depth)
    assert abs(np.vdot(cotangent, padded) - np.vdot(result, array)) < 1e-12
