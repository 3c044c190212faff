"""Sums and means of models over items, over slices of items, and over nodes, as users call them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from daskgrad.autodiff.models.as_called import eager_tape
from daskgrad.autodiff.models.model import Model, Operator, inside_model
from daskgrad.autodiff.programs.reasons import refuse
from daskgrad.autodiff.values.addition import ADDITIONS, add_anew, pairwise
from daskgrad.autodiff.values.descriptions import describe, require_choice
from daskgrad.autodiff.values.protection import USED_UP, protect
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.delayed import as_model, call, require_name
from daskgrad.graph.hidden_nodes import LOOKED_AT
from daskgrad.graph.nodes import Node, require_no_node_in
from daskgrad.graph.sum_of_nodes import sum_of
from daskgrad.sums.adding import divide_leaves
from daskgrad.sums.cutting import Grainsize, require_grainsize
from daskgrad.sums.eager_sums import eager_sum
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source, known, read_once
from daskgrad.sums.zipping import (
    Items,
    Zip,
    as_sources,
    cut_alike,
    drawn_in,
    holds_nodes,
    nested_part,
    reason_against,
    side_by_side,
    terms_of,
)

# -------------------------------------------------------------------------------------------------
# Nested: sums inside models, where nothing is recorded.
#
# Terms may hold the boxes of a trace, so they are added with ``+``, in the order of all sums:
# derivatives flow through them as through the rest of the model.


def term(fun: Callable, name: str, number: int, item: Any, shared: tuple) -> Any:
    try:
        return fun(*protect([item, *shared]))
    except Exception as error:
        error.add_note(f"daskgrad: in item {number} of a sum of {name!r} inside a model")
        raise


# ---------------------------------------------------------------------------------- sums and means

Summation = Literal["pairwise", "compensated"]

MEAN = Model(divide_leaves, "mean", operator=Operator(linear_in=(0,)))


def map_sum(
    model: Any,
    items: Any,
    *shared: Any,
    grainsize: Grainsize = "auto",
    summation: Summation = "pairwise",
    name: str | None = None,
) -> Any:
    """The sum of ``model(item, *shared)`` over the items, as one node.

    The terms must have one structure and shape. They are added along a binary tree over the items'
    indices: the bits of value and gradient depend neither on the grainsize nor on the scheduler.
    Booleans and short integers are added in 64 bits, as ``np.sum`` does; masked arrays are refused.
    Inside a model it records nothing and returns the sum itself; derivatives flow through it.

    Parameters
    ----------
    model:
        a plain function, or a model that ``delayed`` made.
    items:
        a list, tuple or range; a NumPy or dask Array (its rows are the items); a list of Delayed,
        each an item; a dask Bag (its elements; the bits depend on its partitions); the result of
        ``place``; a variable that is a list, a tuple or an array, or NumPy on variables, whose
        items are differentiated; or ``zip`` of several. A list that holds nodes is recorded as one
        node an item.
    shared:
        further arguments of every term; may hold variables and other nodes at any depth.
    grainsize:
        items in one task, rounded down to a power of two; "auto" makes 32 to 64 tasks of a long
        list. Placed items and bags have their own.
    summation:
        "pairwise" rounds every addition: the error of a sum s of n terms x is at most
        ``u log2(n) Σ|x|`` to first order, where u is half the dtype's epsilon. "compensated" adds
        up the rounding errors, too, along the same tree, and rounds once at the end: the error is
        at most ``u |s| + O(log²n u²) Σ|x|``, entry by entry and for real and imaginary parts each,
        in the value and in the sum of the terms' gradients. The terms and their gradients are as
        accurate as the model, and a factor that scales the sum is rounded as ever. Partial sums of
        several dtypes are converted to their common one before they are added; integers are added
        exactly. Infinities and NaNs arise as in plain addition. The bound and its source are in
        ``daskgrad.autodiff.values.addition``.
    name:
        the sum's name in task keys, errors, the dashboard and the workers' events; the model's if
        not given.

    Returns
    -------
    Node
        The sum; inside a model, the value itself.

    Raises
    ------
    ValueError
        if there are no items, zipped collections have different lengths, the grainsize is not a
        number of items or differs from the shards', the rows of a dask Array are not counted, the
        summation is unknown, or it is compensated inside a model.
    TypeError
        if ``items`` is anything else, items or arguments hold iterators, terms are not numbers, or
        the name is not a string.

    See Also
    --------
    map_mean, reduce_sum, zip, place, per_item

    Examples
    --------
    >>> def squared_error(item, w):
    ...     x, y = item
    ...     return (w[0] + w[1] * x - y) ** 2
    >>> items = [(0.0, 1.0), (1.0, 2.0), (2.0, 5.0)]
    >>> dg.value_and_grad(lambda w: dg.map_sum(squared_error, items, w))(np.array([1.0, 1.0]))
    (np.float64(4.0), array([-4., -8.]))
    """
    total = add_up(model, items, "items", shared, grainsize, summation, name, slices=False)
    return scaled(total, items, name)


def map_mean(
    model: Any,
    items: Any,
    *shared: Any,
    grainsize: Grainsize = "auto",
    summation: Summation = "pairwise",
    name: str | None = None,
) -> Any:
    """The mean of ``model(item, *shared)`` over the items: ``map_sum``, divided by their number.

    It has the parameters, errors and promises of ``map_sum``, and its bits, divided leaf by leaf in
    a further node, whose tasks are called "mean" if no ``name`` is given. Tasks beside the sum
    count the elements of a bag. The mean of integers and booleans is a float. All items count
    equally: a weighted mean is a quotient of two sums.

    Returns
    -------
    Node
        The mean; inside a model, the value itself.

    See Also
    --------
    map_sum, reduce_sum

    Examples
    --------
    >>> dg.grad(lambda x: dg.map_mean(lambda item, x: (item - x) ** 2, [1.0, 2.0, 6.0], x))(0.0)
    np.float64(-6.0)
    """
    total = add_up(model, items, "items", shared, grainsize, summation, name, slices=False)
    if inside_model() and not isinstance(total, Node):
        return divide_leaves(total, count_of(items))
    return divided(total, count_of(items), name or MEAN.name)


def reduce_sum(
    partial_sum: Any,
    sliced: Any,
    *shared: Any,
    grainsize: Grainsize = "auto",
    summation: Summation = "pairwise",
    name: str | None = None,
) -> Any:
    """The sum of ``partial_sum(slice, *shared)`` over slices of ``grainsize`` items, as one node.

    As ``map_sum``, but the user's function gets a whole slice (a list, or rows of an array; for a
    ``zip`` a tuple of slices) and adds up its items. The grainsize is not rounded. ``summation``
    says how the slices' sums are added. Source of the interface: Stan's ``reduce_sum``.

    With "auto" arrays, placed ones too, are cut into equal slices, as many as rows and bytes
    alone decide: a slice costs some tenths of a millisecond besides its rows, so each has at
    least 32,768 rows or 4 MiB. For rows of some numbers: one slice of 10,000 rows, 2 of 100,000, 8
    of a million, 32 of 10 million, and at most 64. Give a grainsize if a row takes longer than a
    microsecond, and there are few; placed items have the grainsize that ``place`` got. Lists have
    32 to 64 slices, also if they are zipped with arrays. The slices of a dask Array are its blocks
    along the first axis; the slices of a dask DataFrame, Series or Bag are its partitions.

    The bits of the result depend on the slices alone (for a DataFrame also on its memory layout,
    which pandas may change when a partition moves): with "auto" neither on workers nor on the
    scheduler. Collections that are zipped with placed items are cut as these are.

    Returns
    -------
    Node
        The sum; inside a model, the value itself.

    See Also
    --------
    map_sum, zip, place

    Examples
    --------
    >>> def partial_sum(items, x):  # of a slice, as in Stan
    ...     return np.sum((items - x) ** 2)
    >>> dg.grad(lambda x: dg.reduce_sum(partial_sum, np.arange(10.0), x, grainsize=4))(0.0)
    np.float64(-90.0)
    """
    total = add_up(partial_sum, sliced, "sliced", shared, grainsize, summation, name, slices=True)
    return scaled(total, sliced, name)


def sum(nodes: Iterable[Node], summation: Summation = "pairwise", name: str | None = None) -> Node:
    """The sum of nodes of one structure and shape, along a binary tree over their indices.

    ``summation`` is as in ``map_sum``, for the value alone: contributions to the gradient of one
    variable come from several consumers, and are added pairwise. ``name`` names its tasks, "sum" if
    not given. The sum of a single node is that node.

    See Also
    --------
    map_sum, reduce_sum

    Examples
    --------
    >>> linear, square = dg.delayed(np.sum), dg.delayed(lambda x: np.sum(x**2))
    >>> dg.grad(lambda x: dg.sum([linear(x), square(x), square(x)]))(np.array([1.0, 2.0]))
    array([5., 9.])
    """
    if isinstance(nodes, Node):
        raise TypeError(f"dg.sum takes a list of nodes; found {nodes!r}: write dg.sum([a, b])")
    if not isinstance(nodes, Iterable):
        raise TypeError(f"dg.sum takes a list of nodes; found {describe(nodes)}")
    nodes = list(nodes)
    require_choice(summation, ADDITIONS, "summation")
    require_name(name, "a sum")
    tape = eager_tape()
    if tape is not None and nodes:
        return tape.sum(nodes, summation, name or "sum")
    for number, node in enumerate(nodes):
        if not isinstance(node, Node):
            raise TypeError(
                f"dg.sum adds up nodes; found {describe(node)} in place {number}: add it with +"
            )
    if not nodes:
        raise ValueError("dg.sum of no nodes has no shape; sum at least one")
    return sum_of(nodes, name or "sum", summation)


def add_up(
    model: Any,
    items: Any,
    argument: str,
    shared: tuple,
    grainsize: Grainsize,
    summation: Summation,
    name: str | None,
    slices: bool,
) -> Any:
    """The sum of a model over items or slices: a node; inside a model, the value."""
    model = as_model(model, name)
    require_grainsize(grainsize)
    require_choice(summation, ADDITIONS, "summation")
    is_zip = isinstance(items, Zip)
    leaves = flatten((side_by_side(items), shared))[0] if inside_model() else ()
    # a sum with a node belongs to an inner derivative, and is recorded
    if inside_model() and not any([isinstance(leaf, Node) for leaf in leaves]):
        require_plain_additions(summation)
        parts = [nested_part(part, argument) for part in side_by_side(items)]
        numbered = enumerate(terms_of(parts, is_zip, slices, grainsize))
        terms = (term(model.fun, model.name, n, item, shared) for n, item in numbered)
        return pairwise(terms, add_anew)
    sources = as_sources(items, argument, slices)
    if not holds_nodes(sources):
        cut = cut_alike(sources, grainsize, slices)
        return reduction(model, cut, shared, is_zip, summation)
    parts = [source.one_by_one() for source in sources]
    terms = terms_of(parts, is_zip, slices, grainsize)
    return sum([call(model, (term, *shared), {}) for term in terms], summation, name)


def count_of(items: Any) -> Any:
    """The number of items of a sum; for a bag, the result that Dask will count."""
    drawn = drawn_in(items)
    items = side_by_side(items)[0] if drawn is None else drawn
    if hasattr(type(items), "foldby"):
        return read_once(items).count().to_delayed(optimize_graph=False)
    return len(known(items))


def scaled(total: Any, items: Any, name: str | None) -> Any:
    """A sum over a sample, divided by the drawn fraction; any other sum unchanged."""
    drawn = drawn_in(items)
    if drawn is None:
        return total
    return divided(total, len(drawn) / drawn.population, name or "scale")


def divided(total: Any, divisor: Any, name: str) -> Any:
    return call(MEAN._replace(name=name), (total, divisor), {})


def reduction(model: Model, items: Items, shared: tuple, is_zip: bool, summation: Summation) -> Any:
    for source in items.sources:
        if type(source) is Source:
            require_no_node_in(source.items, f"the items of model {model.name!r}")
            require_no_iterators(source.items, model.name)
    if not (items.fit_a_program or inside_model()):
        refuse(reason_against(model.name))
    template = (None,) * len(items.sources) if is_zip else None
    tape = eager_tape()
    if tape is not None:
        return eager_sum(tape, model, items, shared, template, summation)
    return ReductionNode(model, shared, items, template, summation)


def require_no_iterators(items: Any, name: str) -> None:
    for number, item in enumerate(items[:LOOKED_AT] if isinstance(items, list) else ()):
        if isinstance(item, Iterator):
            raise TypeError(f"item {number} of model {name!r} is {describe(item)}, {USED_UP}")


def require_plain_additions(summation: Summation) -> None:
    if summation != "pairwise":
        raise ValueError(
            f"summation={summation!r} was asked for inside a model, where the sum is "
            f"differentiated with the rest of the model, and its additions are plain; leave it "
            f"out, or take the sum out of the model"
        )
