"""How results are compared: leaf by leaf, with the same bits or nearly so."""

import numpy
from optree import tree_leaves

import daskgrad as dg
from daskgrad.autodiff.values.trees import NAMESPACE, flatten


def assert_same(result, expected):
    """The same leaves: types, shapes, and bits."""
    pairs = zip(leaves_of(result), leaves_of(expected), strict=True)
    for one, other in pairs:
        assert type(one) is type(other)
        one, other = numpy.asarray(one), numpy.asarray(other)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def bits(result):
    """The structure; and dtype, shape and bits of each leaf, and of each array of ``Rows``."""
    leaves, structure = flatten(result)
    arrays_of = [leaf.arrays if isinstance(leaf, dg.Rows) else [leaf] for leaf in leaves]
    arrays = [numpy.asarray(array) for several in arrays_of for array in several]
    return str(structure), tuple([(a.dtype.str, a.shape, a.tobytes()) for a in arrays])


def assert_close(result, expected, tolerance):
    """Within a tolerance that is relative to the largest entry of all."""
    scale = max([numpy.max(numpy.abs(leaf)) for leaf in leaves_of(expected)])
    for one, other in zip(leaves_of(result), leaves_of(expected), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=0.0, atol=tolerance * scale)


def leaves_of(tree):
    return tree_leaves(tree, namespace=NAMESPACE)
