"""Rows of the table of bad input: sums, items and random numbers; see ``test_bad_input``."""

import collections
import decimal

import autograd.numpy as anp
import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas
from inputs import (
    BROADCAST,
    ITEMS,
    ITSELF,
    MANY,
    MASKED,
    NESTED,
    OBJECTS,
    ONCE,
    SEED,
    SPARSE,
    WITH_UNIT,
    X,
    closed,
    double,
    energy,
    gradient,
    named,
    sum_of_terms,
    summed,
    term,
    used_up,
    waiting,
)

import daskgrad as dg

ROWS = {
    # ----------------------------------------------------------------------------------- means
    ("map_mean", "model", "a string"): (
        lambda: dg.map_mean("model", [1.0]),
        TypeError,
        "the first argument must be a model, which is a function; found 'model'",
    ),
    ("map_mean", "items", "a set"): (lambda: dg.map_mean(term, {1.0}), TypeError, ITEMS + "set"),
    ("map_mean", "items", "none"): (
        lambda: dg.map_mean(term, []),
        ValueError,
        "items is empty.*sum at least one",
    ),
    ("map_mean", "items", "a bag without elements"): (
        lambda: dg.map_mean(len, dask.bag.from_sequence(["a"]).remove(len)).compute(),
        ValueError,
        "no partition of the items of model 'len' holds an item",
    ),
    ("map_mean", "items", "none, inside a model"): (
        lambda: dg.delayed(lambda: dg.map_mean(term, []))().compute(),
        ValueError,
        "items is empty.*sum at least one",
    ),
    ("map_mean", "shared", "an iterator"): (
        lambda: dg.map_mean(term, [1.0], iter([1.0])),
        TypeError,
        ONCE,
    ),
    ("map_mean", "grainsize", "zero"): (
        lambda: dg.map_mean(term, [1.0], X, grainsize=0),
        ValueError,
        "grainsize must be the number of items in one task.*found 0",
    ),
    ("map_mean", "summation", "unknown"): (
        lambda: dg.map_mean(term, [1.0], X, summation="kahan"),
        ValueError,
        "summation must be one of 'pairwise', 'compensated'; found 'kahan'",
    ),
    ("map_mean", "name", "a number"): (
        lambda: dg.map_mean(term, [1.0], X, name=3),
        TypeError,
        "the name of a sum must be a string; found 3",
    ),
    ("map_mean", "terms", "strings"): (
        lambda: dg.map_mean(lambda item: "text", [1, 2]).compute(),
        TypeError,
        "the terms of a sum must be numbers; found 'text'",
    ),
    ("map_mean", "terms", "a string"): (
        lambda: dg.map_mean(lambda item: "text", [1]).compute(),
        TypeError,
        "model 'mean'",
    ),
    # ------------------------------------------------------------------------------------ sums
    ("map_sum", "model", "a string"): (
        lambda: dg.map_sum("model", [1.0]),
        TypeError,
        "first argument must be a model, which is a function; found 'model'",
    ),
    ("map_sum", "model", "async"): (
        lambda: dg.map_sum(waiting, [1.0]),
        TypeError,
        "'waiting' is async",
    ),
    ("map_sum", "model", "too few arguments"): (
        summed([1.0], lambda item: item),
        TypeError,
        "model 'term', item 0, called with",
    ),
    ("map_sum", "items", "a set"): (summed({1.0}), TypeError, ITEMS + "set"),
    ("map_sum", "items", "a generator"): (summed(used_up()), TypeError, ITEMS + "generator"),
    ("map_sum", "items", "a map"): (summed(map(float, [1])), TypeError, ITEMS + "map"),
    ("map_sum", "items", "dict keys"): (summed({1.0: 1}.keys()), TypeError, ITEMS + "dict_keys"),
    ("map_sum", "items", "a dict"): (summed({"a": 1.0}), TypeError, ITEMS + "{'a'"),
    ("map_sum", "items", "a deque"): (
        summed(collections.deque([1.0])),
        TypeError,
        ITEMS + "deque",
    ),
    ("map_sum", "items", "bytes"): (summed(b"ab"), TypeError, ITEMS + "bytes"),
    ("map_sum", "items", "a memoryview"): (summed(memoryview(X)), TypeError, ITEMS + "memoryview"),
    ("map_sum", "items", "a sparse matrix"): (summed(SPARSE), TypeError, ITEMS + "csr_array"),
    ("map_sum", "items", "0-d"): (summed(np.array(1.0)), TypeError, ITEMS + r"float64\[\]"),
    ("map_sum", "items", "a Delayed"): (summed(dask.delayed([1.0])), TypeError, ITEMS + "Delayed"),
    ("map_sum", "items", "a node"): (
        summed(energy(X)),
        TypeError,
        "how many items it will have is not known",
    ),
    ("map_sum", "items", "none"): (summed([]), ValueError, "items is empty.*sum at least one"),
    ("map_sum", "items", "masked"): (summed(MASKED), TypeError, r"MaskedArray float64\[3\]"),
    ("map_sum", "items", "with a unit"): (summed(WITH_UNIT), TypeError, r"Unit float64\[3\]"),
    ("map_sum", "items", "objects"): (summed(OBJECTS), TypeError, "array of Python objects"),
    ("map_sum", "items", "broadcast"): (summed(BROADCAST), ValueError, f"items is .*{MANY}"),
    ("map_sum", "items", "a Dask array, 0-d"): (summed(da.ones(())), TypeError, "0 dimensions"),
    ("map_sum", "items", "a Dask array, masked"): (
        summed(da.ma.masked_array(da.ones(3, chunks=2), [0, 1, 0])),
        TypeError,
        "a block of the items is MaskedArray",
    ),
    ("map_sum", "items", "generators"): (
        summed([[1.0], used_up()]),
        TypeError,
        f"item 1 of model 'term' is generator, which {ONCE}",
    ),
    ("map_sum", "items", "tuples of generators"): (
        lambda: dg.grad(lambda x: dg.map_sum(term, [(1.0, used_up())], x))(X),
        TypeError,
        f"an argument holds a generator, which {ONCE}",
    ),
    ("map_sum", "items", "one that holds itself"): (summed([ITSELF]), RecursionError, NESTED),
    ("map_sum", "items", "written into"): (
        summed([X.copy()], lambda item, x: item.sort()),
        ValueError,
        "may have written into",
    ),
    ("map_sum", "shared", "an iterator"): (
        lambda: dg.map_sum(term, [1.0], iter([1.0])),
        TypeError,
        f"is list_iterator, which {ONCE}",
    ),
    ("map_sum", "shared", "broadcast"): (
        lambda: dg.map_sum(term, [1.0], BROADCAST),
        ValueError,
        MANY,
    ),
    ("map_sum", "grainsize", "zero"): (
        summed([1.0], grainsize=0),
        ValueError,
        "grainsize must be the number of items in one task.*found 0",
    ),
    ("map_sum", "name", "a number"): (
        summed([1.0], name=3),
        TypeError,
        "the name of a sum must be a string; found 3",
    ),
    ("map_sum", "summation", "unknown"): (
        summed([1.0], summation="kahan"),
        ValueError,
        "summation must be one of 'pairwise', 'compensated'; found 'kahan'",
    ),
    ("map_sum", "summation", "an array"): (
        summed([1.0], summation=X),
        ValueError,
        "summation must be one of",
    ),
    ("map_sum", "terms", "strings"): (
        sum_of_terms("a", "b"),
        TypeError,
        "terms of a sum must be numbers; found 'a'",
    ),
    ("map_sum", "terms", "arrays of strings"): (
        sum_of_terms(np.array(["a"]), np.array(["b"])),
        TypeError,
        r"terms of a sum must be numbers; found <U1\[1\]",
    ),
    ("map_sum", "terms", "dates"): (
        sum_of_terms(*np.zeros(2, "M8[D]")),
        TypeError,
        "terms of a sum must be numbers; found datetime64",
    ),
    ("map_sum", "terms", "None"): (sum_of_terms(None, None), TypeError, "numbers; found None"),
    ("map_sum", "terms", "Decimals"): (
        sum_of_terms(decimal.Decimal(1), decimal.Decimal(2)),
        TypeError,
        "numbers; found Decimal",
    ),
    ("map_sum", "terms", "sparse matrices"): (
        sum_of_terms(SPARSE, SPARSE),
        TypeError,
        "numbers; found csr_array",
    ),
    ("map_sum", "terms", "masked arrays"): (
        sum_of_terms(MASKED, MASKED),
        TypeError,
        "found a masked array.*fill it",
    ),
    ("map_sum", "terms", "masked arrays, compensated"): (
        sum_of_terms(MASKED, MASKED, summation="compensated"),
        TypeError,
        "found a masked array.*fill it",
    ),
    ("map_sum", "terms", "of other structures"): (
        sum_of_terms({"a": 1.0}, 1.0),
        ValueError,
        r"one structure and shape; found {'a': 1\.0} and 1\.0",
    ),
    ("map_sum", "terms", "of other shapes"): (
        sum_of_terms(np.ones(2), 1.0),
        ValueError,
        r"one structure and shape; found float64\[2\] and 1\.0",
    ),
    ("map_sum", "terms", "ragged lists"): (
        sum_of_terms([[1.0], [2.0]], [[1.0], [2.0, 3.0]]),
        ValueError,
        "one structure and shape",
    ),
    ("reduce_sum", "partial_sum", "None"): (
        lambda: dg.reduce_sum(None, [1.0]),
        TypeError,
        "first argument must be a model, which is a function; found None",
    ),
    ("reduce_sum", "sliced", "a set"): (
        lambda: dg.reduce_sum(sum, {1.0}),
        TypeError,
        "sliced " + ITEMS + "set",
    ),
    ("reduce_sum", "sliced", "broadcast"): (
        lambda: dg.reduce_sum(sum, BROADCAST),
        ValueError,
        "sliced is .*" + MANY,
    ),
    ("reduce_sum", "sliced", "written into"): (
        lambda: dg.reduce_sum(named(lambda s: s.sort(), "part"), X).compute(),
        ValueError,
        r"model 'part', item 0 may have written into",
    ),
    ("reduce_sum", "shared", "a generator"): (
        lambda: dg.reduce_sum(term, [1.0], used_up()),
        TypeError,
        ONCE,
    ),
    ("reduce_sum", "grainsize", "a string"): (
        lambda: dg.reduce_sum(sum, [1.0], grainsize="large"),
        ValueError,
        "grainsize must be .*found 'large'",
    ),
    ("reduce_sum", "summation", "None"): (
        lambda: dg.reduce_sum(sum, [1.0], summation=None),
        ValueError,
        "summation must be one of .*found None",
    ),
    ("reduce_sum", "name", "bytes"): (
        lambda: dg.reduce_sum(sum, [1.0], name=b"total"),
        TypeError,
        "the name of a sum must be a string; found bytes",
    ),
    ("sum", "name", "a node"): (
        lambda: dg.sum([energy(X)], name=energy(X)),
        TypeError,
        "the name of a sum must be a string; found",
    ),
    ("sum", "nodes", "a node"): (
        lambda: dg.sum(energy(X)),
        TypeError,
        r"takes a list of nodes; found <CallNode energy>: write dg.sum\(\[a, b\]\)",
    ),
    ("sum", "nodes", "a number"): (
        lambda: dg.sum(3),
        TypeError,
        "dg.sum takes a list of nodes; found 3",
    ),
    ("sum", "nodes", "arrays"): (
        lambda: dg.sum([energy(X), X]),
        TypeError,
        r"adds up nodes; found float64\[3\] in place 1",
    ),
    ("sum", "nodes", "Delayed objects"): (
        lambda: dg.sum([dask.delayed(1.0)]),
        TypeError,
        "adds up nodes; found Delayed.* in place 0",
    ),
    ("sum", "nodes", "none"): (lambda: dg.sum([]), ValueError, "of no nodes has no shape"),
    ("sum", "summation", "unknown"): (
        lambda: dg.sum([energy(X)], summation="exact"),
        ValueError,
        "summation must be one of .*found 'exact'",
    ),
    ("zip", "collections", "none"): (lambda: dg.zip(), ValueError, "zip at least one collection"),
    ("zip", "collections", "of other lengths"): (
        lambda: dg.zip([1.0], [1.0, 2.0]),
        ValueError,
        "the same length; found lengths 1 and 2",
    ),
    ("zip", "collections", "a number"): (
        lambda: dg.zip([1.0], 3),
        TypeError,
        "an argument of dg.zip " + ITEMS + "3",
    ),
    ("zip", "collections", "a generator"): (
        lambda: dg.zip([1.0, 2.0], used_up()),
        TypeError,
        ITEMS + "generator",
    ),
    ("zip", "collections", "a zip"): (
        lambda: dg.zip([1.0], dg.zip([1.0])),
        TypeError,
        ITEMS + "Zip",
    ),
    ("zip", "collections", "broadcast"): (lambda: dg.zip(BROADCAST), ValueError, MANY),
    ("per_item", "model", "a number"): (
        lambda: dg.per_item(3, [1.0]),
        TypeError,
        "first argument must be a model, which is a function; found 3",
    ),
    ("per_item", "items", "a variable"): (
        lambda: dg.per_item(term, dg.variable([1.0])),
        TypeError,
        "differentiates only the shared arguments",
    ),
    ("per_item", "items", "a set"): (lambda: dg.per_item(term, {1.0}), TypeError, ITEMS + "set"),
    ("per_item", "argnums", "a string"): (
        lambda: dg.per_item(term, [1.0], argnums="x"),
        ValueError,
        "argnums='x' of 'term' must be numbers of positional",
    ),
    ("per_item", "argnums", "too large"): (
        lambda: dg.per_item(term, [1.0], argnums=1)(X),
        ValueError,
        "argnums=1 of 'term'.*called with 1",
    ),
    ("per_item", "gradient", "unknown"): (
        lambda: dg.per_item(term, [1.0], gradient="all"),
        ValueError,
        "gradient must be one of 'norm', 'full'.*found 'all'",
    ),
    ("per_item", "grainsize", "a fraction"): (
        lambda: dg.per_item(term, [1.0], grainsize=1.5),
        ValueError,
        r"grainsize must be .*found 1\.5",
    ),
    ("per_item", "name", "a number"): (
        lambda: dg.per_item(term, [1.0], name=3),
        TypeError,
        "the name of a sum must be a string; found 3",
    ),
    ("per_item", "terms", "vectors"): (
        lambda: dg.per_item(double.model.fun, [1.0])(),
        ValueError,
        "argnums=0 of 'double'.*called with 0",
    ),
    ("place", "items", "a Dask array of no rows"): (
        lambda: dg.place(da.ones((0, 3))),
        ValueError,
        "items is empty",
    ),
    ("place", "items", "a Dask table"): (
        lambda: dg.place(dd.from_pandas(pandas.DataFrame({"a": [1.0]}), npartitions=1)),
        TypeError,
        r"items is a dask DataFrame.*place its columns as arrays, .*to_dask_array\(lengths=True\)",
    ),
    ("place", "items", "a list of nodes"): (
        lambda: dg.place([1.0, dg.variable(1.0)]),
        TypeError,
        r"items must be .* collection of data; found <Variable.*zip the data with it, dg\.zip",
    ),
    ("place", "items", "a variable among columns"): (
        lambda: dg.place(dg.zip([1.0], dg.variable([1.0]))),
        TypeError,
        r"an argument of dg.zip must be .* of data; found <Variable.*zip the data with it",
    ),
    ("place", "items", "columns of several lengths"): (
        lambda: dg.place(dg.zip([1.0], np.ones(2))),
        ValueError,
        "the same length; found lengths 1 and 2",
    ),
    ("place", "items", "placed columns"): (
        lambda: dg.place(dg.zip([1.0], dg.place([1.0]))),
        TypeError,
        "found Shards, which are placed already: zip them with others, or place all together",
    ),
    ("replicate", "array", "a list"): (
        lambda: dg.replicate([np.ones(3)]),
        TypeError,
        r"dg.replicate takes a plain array of numbers; found list.*replicate the large arrays",
    ),
    ("replicate", "array", "an array of objects"): (
        lambda: dg.replicate(np.array([None])),
        TypeError,
        "takes a plain array of numbers; found object",
    ),
    ("place", "items", "a table"): (
        lambda: dg.place(pandas.DataFrame({"a": [1.0]})),
        TypeError,
        r"must be a list.*found DataFrame; pass its rows: \.to_numpy",
    ),
    ("place", "items", "a variable"): (
        lambda: dg.place(dg.variable([1.0])),
        TypeError,
        "must be a list.*found <Variable.*what is placed stays as it is",
    ),
    ("place", "items", "broadcast"): (lambda: dg.place(BROADCAST), ValueError, MANY),
    ("place", "grainsize", "negative"): (
        lambda: dg.place([1.0], grainsize=-1),
        ValueError,
        "grainsize must be .*found -1",
    ),
    ("Shards", "use", "after they were closed"): (
        lambda: closed(dg.place([1.0])),
        RuntimeError,
        "these shards are closed; place the items again",
    ),
    ("Shards", "use", "placed again"): (
        lambda: dg.place(dg.place([1.0])),
        TypeError,
        "must be a list.*found Shards, which are placed already",
    ),
    # ---------------------------------------------------------------------------- random numbers
    ("random", "seed", "None"): (
        lambda: dg.random.generators(None, 3),
        TypeError,
        SEED.format("random.generators") + "None",
    ),
    ("random", "seed", "a generator"): (
        lambda: dg.random.generators(np.random.default_rng(0), 3),
        TypeError,
        SEED.format("random.generators") + r"Generator.*draw a seed from it with \.integers",
    ),
    ("random", "seed", "a RandomState"): (
        lambda: dg.random.generators(np.random.RandomState(0), 3),
        TypeError,
        "draw a seed from it",
    ),
    ("random", "seed", "negative"): (
        lambda: dg.random.generators(-1, 3),
        ValueError,
        SEED.format("random.generators") + "-1",
    ),
    ("random", "seed", "a string"): (
        lambda: dg.random.generators("seed", 3),
        TypeError,
        SEED.format("random.generators") + "'seed'",
    ),
    ("random", "seed", "strings"): (
        lambda: dg.random.generators(["a"], 3),
        TypeError,
        SEED.format("random.generators"),
    ),
    ("random", "seed", "fractions"): (
        lambda: dg.random.generators(np.array([1.5]), 3),
        TypeError,
        SEED.format("random.generators"),
    ),
    ("random", "seed", "none of them"): (
        lambda: dg.random.generators([], 3),
        ValueError,
        SEED.format("random.generators"),
    ),
    ("random", "n", "a generator"): (
        lambda: dg.random.generators(0, np.random.default_rng(0)),
        ValueError,
        "n of dg.random.generators must be an integer.*found Generator",
    ),
    ("random", "n", "negative"): (
        lambda: dg.random.generators(0, -1),
        ValueError,
        "n of dg.random.generators must be an integer.*found -1",
    ),
    ("NondeterministicModelError", "run again", "random numbers"): (
        gradient(lambda x: anp.sum(x) * np.random.random(), keep="recompute"),
        dg.NondeterministicModelError,
        "instead of drawing from global state",
    ),
}
