"""scan: time loops of a model; the backward pass runs steps again from few kept states."""

from typing import Any, Literal

from daskgrad.autodiff.models.model import inside_model
from daskgrad.autodiff.values.descriptions import describe, is_integer
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.delayed import as_model
from daskgrad.loops.loop_node import LoopNode, holds_nodes
from daskgrad.loops.nested import NestedLoop
from daskgrad.loops.schedules import Limit
from daskgrad.loops.steps import require_rows
from daskgrad.random import STATEFUL
from daskgrad.tasks.settings import bytes_in

OUTPUTS = ("stack", "sum")


def scan(
    step: Any,
    state: Any,
    n: int,
    *shared: Any,
    xs: Any = None,
    outputs: Literal["stack", "sum"] | None = None,
    checkpoints: int | Literal["auto"] = "auto",
    memory: int | str | None = None,
    name: str | None = None,
) -> Any:
    """The state after ``n`` steps of a loop, ``state = step(state, *shared)``, as one node.

    No step's tape is kept. The forward pass keeps few states; the backward pass runs steps again
    from them, each with its tape, from the last to the first, by the schedule that needs the fewest
    runs for so many states (Griewank and Walther's Revolve). Value and gradient have the same bits
    for every schedule, scheduler and number of workers: the gradients of shared arguments are added
    up from the last step to the first.

    Inside a model it records nothing and returns the value, and keeps as few states. So a sum over
    many loops is ``map_sum`` of a model that calls ``scan``.

    Parameters
    ----------
    step:
        a plain function of the state, or a result of ``delayed``. It returns a state of the same
        structure, shapes and dtypes: any pytree of arrays and numbers. With ``xs`` it is
        called as ``step(state, x, *shared)``, and with ``outputs`` it returns ``(state, output)``.
        It may run several times, so it must return the same value for the same arguments. The
        ``keep`` of a delayed step plays no part.
    state:
        the state before the first step; may hold variables and other nodes.
    n:
        the number of steps, one or more, known beforehand. If the state decides when a simulation
        ends, take the most steps that it may need, and in the step ``np.where(done, old, new)``,
        which passes exact zeros back through the steps after the end.
    shared:
        arguments of every step; may hold variables and other nodes at any depth.
    xs:
        the forcing: a pytree of arrays with a row for each step, for example ``np.arange(n)`` for
        the numbers of the steps. May hold nodes.
    outputs:
        "stack": the outputs of the steps, side by side along a new first axis; "sum": added up in
        the order of the steps. Then the value is a pair, ``last, outputs = dg.scan(...)``.
    checkpoints:
        the number of states that are kept at a time, the first one included. "auto": as many as let
        each step run at most twice before it is traced, about the square root of 2n; all states if
        they take less than 8 MiB. With n or more no step runs again before it is traced.
    memory:
        instead of ``checkpoints``, the bytes that the kept states may take: a number, or "200 MB".
        At least one is kept. A step's tape and its temporaries come on top.
    name:
        its name in task keys, errors and the dashboard; the step's if not given.

    Returns
    -------
    Node
        The last state, or a pair of it and the outputs; inside a model, the value itself.

    Raises
    ------
    TypeError
        if n is not an integer, the state or ``xs`` hold other than numbers, ``shared`` holds a
        random generator (each step would draw the same numbers), or when it runs if a step returns
        another kind of state, or no pair where there are outputs.
    ValueError
        if n is less than one, a leaf of ``xs`` has not n rows, checkpoints or memory are not
        positive or both given, or ``outputs`` is unknown.
    NondeterministicModelError
        when it runs, if a step that runs again returns a different state.

    See Also
    --------
    map_sum, map_overlap

    Notes
    -----
    Outside of models a loop is up to 16 tasks in each pass, of consecutive steps, one after the
    other. The states that a task keeps are part of its result, which Dask may spill to disk;
    ``checkpoints`` counts all of them. Several loops at a time keep as many states each. If a
    worker dies, a loop is repeated from the last state that another worker has.

    Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical
    Software 26, 2000.

    Examples
    --------
    >>> def step(state, rate):
    ...     return state - 0.1 * rate * state
    >>> def program(rate):
    ...     return dg.delayed(np.sum)(dg.scan(step, np.ones(3), 100, rate))
    >>> value, gradient = dg.value_and_grad(program)(0.5)
    >>> round(float(value), 4), round(float(gradient), 4)
    (0.0178, -0.187)
    """
    model = as_model(step, name)
    require_steps(n, model.name)
    if not (outputs is None or (isinstance(outputs, str) and outputs in OUTPUTS)):
        raise ValueError(f"outputs must be 'stack', 'sum' or None; found {describe(outputs)}")
    limit = as_limit(checkpoints, memory)
    require_no_generators(shared, model.name)
    if xs is not None and not holds_nodes(xs):
        require_rows(xs, int(n), model.name)
    if inside_model() and not holds_nodes((state, xs, shared)):
        loop = NestedLoop(model, int(n), xs is not None, outputs, limit)
        return loop(state, *([] if xs is None else [xs]), *shared)
    node = LoopNode(model, state, int(n), shared, xs, outputs, limit)
    return node if outputs is None else (node[0], node[1])


def require_no_generators(shared: tuple, name: str) -> None:
    for leaf in flatten(shared)[0]:
        if isinstance(leaf, STATEFUL):
            raise TypeError(
                f"all steps of the loop {name!r} share {describe(leaf)}, of which each would get "
                f"a copy and draw the same numbers; draw the numbers of all steps beforehand, and "
                f"pass them as xs"
            )


def require_steps(n: Any, name: str) -> None:
    if not is_integer(n):
        raise TypeError(
            f"the number of steps of the loop {name!r} must be an integer; found {describe(n)}: "
            f"where the state decides when a loop ends, take the most steps that it may need, and "
            f"let the step return np.where(done, old_state, new_state)"
        )
    if n < 1:
        raise ValueError(f"the loop {name!r} must have one step or more; found {n}")


def as_limit(checkpoints: Any, memory: Any) -> Limit:
    if memory is None and checkpoints == "auto":
        return Limit()
    if memory is None:
        if not is_integer(checkpoints) or checkpoints < 1:
            raise ValueError(
                f"checkpoints must be 'auto' or a positive integer; found {describe(checkpoints)}"
            )
        return Limit(checkpoints=int(checkpoints))
    if checkpoints != "auto":
        raise ValueError("checkpoints and memory both say how many states are kept; give one")
    return Limit(memory=as_bytes(memory))


def as_bytes(memory: Any) -> int:
    try:
        nbytes = bytes_in(memory) if isinstance(memory, str) or is_integer(memory) else 0
    except ValueError:
        nbytes = 0
    if nbytes < 1:
        raise ValueError(
            f"memory must be a number of bytes, or a text like '200 MB'; found {describe(memory)}"
        )
    return nbytes
