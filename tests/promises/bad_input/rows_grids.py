"""Rows of the table of bad input: grids; see ``test_bad_input``."""

import dask.array as da
import numpy as np
from inputs import MASKED, X, double

import daskgrad as dg

ARRAY = np.arange(12.0).reshape(4, 3)
V = dg.variable(ARRAY, "v")
GRID = dg.grid(ARRAY, (2, 1))


def inner(u, *others):
    return u[1:-1, 1:-1]


def overlap(*args, **options):
    return lambda: dg.map_overlap(inner, *args, **options)


ROWS = {
    ("Grid", "to_array", "nodes"): (
        lambda: dg.map_overlap(inner, GRID).to_array(),
        TypeError,
        r"<Grid of shape \(4, 3\), 2 x 1 blocks> has nodes for blocks; compute it first",
    ),
    ("Grid", "map", "other blocks"): (
        lambda: GRID.map(inner, dg.grid(ARRAY, (1, 1))),
        ValueError,
        r"'inner' was called on grids of different blocks.*\(\(2, 2\), \(3,\)\).*cut both alike",
    ),
    ("Grid", "map", "no model"): (
        lambda: GRID.map("sum"),
        TypeError,
        "must be a model, which is a function; found 'sum'",
    ),
    ("grid", "array", "a list"): (
        lambda: dg.grid([1.0, 2.0], 2),
        TypeError,
        "dg.grid takes arrays of known shape; found 1.0",
    ),
    ("grid", "array", "a node"): (
        lambda: dg.grid(double(V), (2, 1)),
        TypeError,
        "found CallNode; of a node make the grid of its argument, and map the model",
    ),
    ("grid", "array", "a masked array"): (
        lambda: dg.grid(MASKED, 1),
        TypeError,
        "found a masked array",
    ),
    ("grid", "array", "arrays of two shapes"): (
        lambda: dg.grid({"a": ARRAY, "b": X}, (2, 1)),
        ValueError,
        r"must have one shape in its 2 axes; found float64\[4, 3\], float64\[3\]",
    ),
    ("grid", "array", "unknown chunks"): (
        lambda: dg.grid(da.from_array(X)[da.from_array(X) > 0.4]),
        ValueError,
        "must be known: call its compute_chunk_sizes",
    ),
    ("grid", "blocks", "none"): (
        lambda: dg.grid(ARRAY),
        ValueError,
        r"needs the number of blocks along each axis: blocks=\(2, 2\)",
    ),
    ("grid", "blocks", "more than entries"): (
        lambda: dg.grid(ARRAY, (5, 1)),
        ValueError,
        "axis 0 has 4 entries, and cannot be cut into 5 blocks",
    ),
    ("grid", "blocks", "zero"): (lambda: dg.grid(ARRAY, 0), ValueError, "cut into 0 blocks"),
    ("grid", "blocks", "sizes that do not add up"): (
        lambda: dg.grid(ARRAY, ((2, 3), 1)),
        ValueError,
        r"must have positive sizes that add up to 4; found \(2, 3\)",
    ),
    ("grid", "blocks", "for more axes than there are"): (
        lambda: dg.grid(ARRAY, (1, 1, 1)),
        ValueError,
        r"must have one shape in its 3 axes; found float64\[4, 3\]",
    ),
    ("grid", "blocks", "a word"): (
        lambda: dg.grid(ARRAY, "auto"),
        TypeError,
        "blocks must be integers, or sizes, for each axis; found 'auto'",
    ),
    ("grid", "blocks", "for a grid"): (
        lambda: dg.grid(dg.grid(ARRAY, 1), 1),
        ValueError,
        "the blocks of a grid are those that it has; leave blocks",
    ),
    ("grid", "blocks", "for a dask Array"): (
        lambda: dg.grid(da.from_array(ARRAY), (1, 1)),
        ValueError,
        "its chunks; rechunk it",
    ),
    ("map_overlap", "step", "None"): (
        lambda: dg.map_overlap(None, GRID),
        TypeError,
        "must be a model, which is a function; found None",
    ),
    ("map_overlap", "step", "keeps the halo"): (
        lambda: dg.map_overlap(lambda u: u, GRID).compute(scheduler="sync"),
        ValueError,
        r"must return its state without the halos of \[1, 1\] entries.*returned float64\[4, 5\]"
        r".*block \([01], 0\), step 0",
    ),
    ("map_overlap", "grid", "inside a model"): (
        lambda: dg.delayed(lambda: dg.map_overlap(inner, GRID))().compute(),
        TypeError,
        "map_overlap of 'inner' was called inside a model, which is one task; call it where models",
    ),
    ("map_overlap", "grid", "an array"): (
        overlap(ARRAY),
        TypeError,
        r"takes a grid; found float64\[4, 3\]: make one with dg.grid",
    ),
    ("map_overlap", "shared", "a grid of other blocks"): (
        overlap(GRID, dg.grid(ARRAY, (1, 1))),
        ValueError,
        r"argument 0 \(\(4,\), \(3,\)\); cut both alike",
    ),
    ("map_overlap", "depth", "a float"): (
        overlap(GRID, depth=1.0),
        TypeError,
        "depth must be an integer, or one for each axis; found 1.0",
    ),
    ("map_overlap", "depth", "of three axes"): (
        overlap(GRID, depth=(1, 1, 1)),
        ValueError,
        "for each of 2 axes",
    ),
    ("map_overlap", "depth", "wider than a block"): (
        overlap(GRID, depth=3, boundary="reflect"),
        ValueError,
        r"blocks send 3 entries along axis 0 \(depth 3, 1 steps between exchanges\), and one has 2",
    ),
    ("map_overlap", "depth", "wider than the only block of an axis"): (
        overlap(dg.grid(ARRAY, (1, 1)), depth=(1, 4), boundary="reflect"),
        ValueError,
        "a block has 3 entries, and cannot be continued by depth 4 along axis 1",
    ),
    ("map_overlap", "boundary", "unknown"): (
        overlap(GRID, boundary="wrap"),
        ValueError,
        "must be 'periodic', 'reflect', 'nearest' or a number.*found 'wrap'",
    ),
    ("map_overlap", "boundary", "periodic on one side"): (
        overlap(GRID, boundary={0: ("periodic", "reflect")}),
        ValueError,
        "periodic on both sides or on none",
    ),
    ("map_overlap", "boundary", "of an axis that is not there"): (
        overlap(GRID, boundary={2: 0.0}),
        ValueError,
        "must be among 0 to 1; found 2",
    ),
    ("map_overlap", "steps", "zero"): (
        overlap(GRID, steps=0),
        ValueError,
        "steps must be one or more; found 0",
    ),
    ("map_overlap", "fuse", "a float"): (
        overlap(GRID, fuse=2.0),
        TypeError,
        "fuse must be an integer; found 2.0",
    ),
    ("map_overlap", "checkpoints", "a float"): (
        overlap(GRID, checkpoints=2.0),
        TypeError,
        "checkpoints must be an integer; found 2.0",
    ),
    ("map_overlap", "checkpoints", "zero"): (
        overlap(GRID, checkpoints=0),
        ValueError,
        "checkpoints must be one or more; found 0",
    ),
    ("map_overlap", "fuse", "wider than a block"): (
        overlap(GRID, steps=5, fuse=3),
        ValueError,
        "blocks send 3 entries along axis 0.*or a smaller fuse",
    ),
    ("map_overlap", "name", "a number"): (
        overlap(GRID, name=3),
        TypeError,
        "must be a string; found 3",
    ),
}
