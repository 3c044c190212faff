"""Preview: the graphs of a gradient, drawn as Dask would run them."""

import importlib.util
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.portions import Portion
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Seed
from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.inputs import Argnums, require_differentiable
from daskgrad.derivatives.recording import RecordedFunction
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import build_forward
from daskgrad.graph.nodes import Node
from daskgrad.graph.order import order
from daskgrad.graph.variables import Variable
from daskgrad.tasks.task_graph import TaskGraph, where


def visualize(
    fun: Callable | Node,
    *args: Any,
    argnums: Argnums = 0,
    filename: str | None = None,
    shapes: bool = True,
) -> Any:
    """The graph of a function's value, and beside it the mirrored graph of its gradient.

    Each box is a task of the graph that ``dg.value_and_grad(fun, argnums)(*args)`` hands to Dask,
    with model, stage, and dtype and shape of its result. A model has one hue: forward light,
    backward dark. Dashed lines are pullbacks; other inputs of backward tasks are left out. If there
    are more than 60 tasks, equal tasks with equal inputs are one box with their number.

    Parameters
    ----------
    fun, args, argnums:
        as ``value_and_grad`` takes them; or a node in the place of ``fun``, which is drawn with
        respect to all its variables, for a cotangent of ones.
    filename:
        a file for the picture; its suffix is the format: ``"graph.svg"``.
    shapes:
        evaluates value and gradient once, since shapes are not known before; False runs no model.

    Returns
    -------
    graphviz.Digraph or Mermaid
        A ``graphviz.Digraph``, which notebooks show; ``.source`` is its text. Without Graphviz the
        text of a flowchart of Mermaid's, which JupyterLab, GitHub and https://mermaid.live draw;
        also for a file whose suffix is ``.mmd``.

    Raises
    ------
    ModuleNotFoundError
        for a file, if the package graphviz is not installed (``pip install
        "daskgrad[visualize]"``).
    RuntimeError
        for a file, if Graphviz's program ``dot`` is not installed.
    TypeError, ValueError
        as ``value_and_grad``, and for a file whose format is unknown.

    See Also
    --------
    explain, report

    Examples
    --------
    >>> total = dg.delayed(np.sum, name="total")
    >>> picture = dg.visualize(total, np.ones(3), shapes=False)
    >>> "total" in picture.source
    True
    """
    if isinstance(fun, Node):
        draw = load_drawing(filename, shapes)
        variables = [source.root for source in order([fun]) if isinstance(source, Variable)]
        return draw(*built(Graph(fun, list(dict.fromkeys(variables))), None, shapes), filename)
    name = require_differentiable(fun, argnums, "visualize")
    draw = load_drawing(filename, shapes)
    recorded = RecordedFunction(fun, name, argnums, args)
    graph = recorded.scalar_graph()
    return draw(*built(graph, Seed(), shapes), filename)


def load_drawing(filename: Any, shapes: Any) -> Callable:
    """The function that draws; raises if an option is wrong, or if the file needs Graphviz and it
    is missing."""
    if not isinstance(shapes, bool):
        raise TypeError(f"shapes of visualize must be True or False; found {describe(shapes)}")
    from daskgrad.dashboards.drawing import draw_as_text

    suffix = pathlib.Path(filename).suffix if isinstance(filename, str) else ""
    is_text = suffix == ".mmd"
    if filename is None:
        is_text = importlib.util.find_spec("graphviz") is None or shutil.which("dot") is None
    if is_text:
        return draw_as_text
    graphviz = imported("graphviz", "visualize", "visualize draws with the package graphviz")
    if filename is not None and suffix[1:] not in graphviz.FORMATS:
        raise ValueError(
            "filename of visualize must be a string that ends in a format of Graphviz, as "
            "'graph.svg', 'graph.pdf' or 'graph.png', or in '.mmd', for Mermaid; found "
            f"{describe(filename)}"
        )
    if shutil.which("dot") is None:
        raise RuntimeError(
            "visualize draws with Graphviz's program dot, which is not on the PATH: "
            "install Graphviz (apt-get install graphviz, brew install graphviz, "
            "conda install graphviz), or write a file whose suffix is .mmd"
        )
    from daskgrad.dashboards.digraph import draw

    return draw


def built(graph: Graph, seed: Cotangent | None, shapes: bool) -> tuple[Any, ...]:
    """The tasks of both passes; the keys of variables with their cotangents'; and the shapes.
    Without a seed, a task makes ones for the output's cotangent."""
    tasks = TaskGraph(where())
    forward = build_forward(graph, tasks, is_lazy=True)
    arrived = {}
    if graph.output in graph.active:
        key = tasks.key("cotangent", graph.output.key_name)
        ones = seed or tasks.add(key, ones_like, forward.values[graph.output])
        arrived = pull_here(forward, build_backward(forward, tasks, ones), tasks)
    variables = {
        node: ref.key for node, ref in forward.values.items() if isinstance(node, Variable)
    }
    inputs = {key: () for key in variables.values()} | tasks.planned()
    pairs = {key: arrived[node].key if node in arrived else None for node, key in variables.items()}
    return inputs, pairs, describe_results(tasks, list(inputs)) if shapes else {}


def ones_like(value: Any) -> Cotangent:
    """A cotangent of ones, for the leaves that have a derivative."""
    leaves, _ = flatten(value)
    ones = [np.ones_like(leaf) if cotangents.is_differentiable(leaf) else None for leaf in leaves]
    return Cotangent(tuple(ones))


def describe_results(tasks: TaskGraph, keys: Sequence[Any]) -> dict[Any, str]:
    """Runs all tasks where Dask would, and describes their results."""
    described = [
        tasks.add(tasks.key("value", "shape"), describe_result, tasks.reference(key)).key
        for key in keys
    ]
    return dict(zip(keys, tasks.compute(described), strict=True))


def describe_result(result: Any) -> str:
    """Dtypes and shapes of a value, of a captured one, or of cotangents."""
    if isinstance(result, Portion):
        items = result.items.items()
        return "; ".join([f"[{entry!r}] {describe_result(item)}" for entry, item in items])
    if isinstance(result, Cotangent):
        return ", ".join(["0" if leaf is None else describe(leaf) for leaf in result.leaves])
    if isinstance(result, list | tuple) and result and isinstance(result[0], Cotangent):
        return "; ".join(map(describe_result, result))
    return describe(getattr(result, "value", result))
