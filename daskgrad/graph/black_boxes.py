"""Black boxes: models whose differences are tasks of the graph, beside the value's task."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.autodiff.models.differences import METHODS, Differenced, Scheme, collect, difference
from daskgrad.autodiff.models.model import Model, inside_model
from daskgrad.autodiff.models.pullbacks import evaluate
from daskgrad.autodiff.values.descriptions import require_choice, require_number
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import count, kinds
from daskgrad.graph.delayed import DelayedModel, require_name
from daskgrad.graph.forward import Forward, forward_tasks
from daskgrad.graph.nodes import CallNode, Node
from daskgrad.graph.variables import Variable

MOST_TASKS = 64  # for the differences of one call
UNCOUNTED_TASKS = 32  # if the size of the arguments is unknown: some may find no work


def finite_difference(
    fun: Callable,
    method: str = "central",
    step: float | None = None,
    name: str | None = None,
) -> "BlackBox":
    """Makes a model of a black box, which is differentiated by differences of its values.

    ``fun`` is any function of arrays and other arguments: it may start a program, or call Fortran.
    If a call in a graph is differentiated, the forward pass evaluates it at displaced arguments in
    separate tasks, at most 64, and the pullback is the transposed Jacobian. In a sum
    (``dg.map_sum``) the evaluations of a term run in the task of its block; within a model they run
    at once.

    Parameters
    ----------
    method:
        "central" evaluates twice for each real number in the differentiated arguments: the error is
        O(h²), and rounding O(ε/h). "complex-step" evaluates once, at x + ih: the error is O(h²),
        without rounding; ``fun`` must be analytic in complex numbers: no ``abs``, no conjugates, no
        comparisons of imaginary parts. (W. Squire and G. Trapp, SIAM Review 40, 1998.)
    step:
        h, relative to ``max(1, |x|)`` for each number x. The default is ε^(1/3) for "central", with
        ε of the coarser of the argument's and the value's dtype (the error is then of the order
        of ε^(2/3) for functions of order one), and 1e-20 for "complex-step". Scale arguments that
        are much smaller than one, or give a smaller step.
    name:
        its name in task keys, errors and the dashboard; the function's name if not given.

    Returns
    -------
    function
        The model: it takes the arguments of ``fun``, and returns a node.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, or the name is not a string. When it runs: if a complex step
        is used with complex arguments, or with a function that returns real numbers for complex
        ones.
    ValueError
        if the method is unknown, the step is not a positive number, or the size of the value
        changes with the arguments.

    See Also
    --------
    custom_vjp, implicit

    Notes
    -----
    Forward mode evaluates in one direction, in which no number moves by more than its h. There are
    first derivatives only: second ones are an error (``dg.gnvp`` needs none of its residuals).
    Complex arguments count twice, and need "central". The dense Jacobian of a call is kept until
    the backward pass.

    Examples
    --------
    >>> black_box = dg.finite_difference(lambda x: float(x[0]) ** 2 + float(x[1]))
    >>> dg.grad(lambda x: black_box(x))(np.array([3.0, 1.0])).round(6)
    array([6., 1.])
    """
    if isinstance(fun, DelayedModel):
        fun = fun.model.fun
    require_choice(method, METHODS, "method")
    if step is not None:
        require_number(step, "step", is_positive=True)
    require_name(name, "a model")
    box = Differenced(fun, Scheme(method, step), name)
    return BlackBox(Model(box, box.name))


class BlackBox(DelayedModel):
    """A model with calls that are differentiated by differences."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Records a node; within a model, where nothing is recorded, the value itself."""
        leaves = flatten((args, kwargs))[0]
        if inside_model() and not any(isinstance(leaf, Node) for leaf in leaves):
            return self.model.fun(*args, **kwargs)
        return BlackBoxNode(self.model, args, kwargs)


class BlackBoxNode(CallNode):
    """One call of a black box."""

    is_one_run = False


@forward_tasks.register
def _(node: BlackBoxNode, forward: Forward) -> None:
    """Builds a separate task for the value, so that consumers do not wait for the differences."""
    tasks = forward.tasks
    tasks.share([node.model, node.model])  # it is in every task
    forward.active[node] = forward.graph.active_inputs(node)
    model, call, active, inputs = forward.called(node)
    value = node.build_task(tasks, "value", evaluate, model, call, inputs)
    total = task_count([node.inputs[number] for number, *_ in active])
    args = (difference, node.model.fun.scheme, model, call, active)
    parts = [
        node.build_task(tasks, "forward", *args, first, total, inputs) for first in range(total)
    ]
    collected = (model, call, active, inputs, value, parts)
    forward.captured[node] = node.build_task(tasks, "forward", collect, *collected)
    forward.values[node] = value


def task_count(active: Sequence[Node]) -> int:
    """The number of tasks; with n tasks, each takes every n-th entry of the arguments."""
    variables = [source for source in active if isinstance(source, Variable)]
    if len(variables) < len(active):
        return UNCOUNTED_TASKS
    leaves = [leaf for source in variables for leaf in source.leaves]
    return min(MOST_TASKS, count(kinds(leaves)))
