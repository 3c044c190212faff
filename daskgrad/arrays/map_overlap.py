"""map_overlap: steps on the blocks of a grid, which exchange their edges."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daskgrad.arrays.grid import Grid, as_grid, as_node
from daskgrad.arrays.halos import ConstantBoundary, Frame, Side, Sides, assemble, frame_of
from daskgrad.arrays.steps import (
    BlockSteps,
    FramedNode,
    FrameNode,
    Segment,
    SegmentPlace,
    StepNode,
    capture_block,
    capture_block_when,
    pull_back_block,
    pull_back_frame,
)
from daskgrad.autodiff.models.model import Call, Model, inside_model
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.descriptions import describe, is_integer, is_number
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.delayed import as_model
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on
from daskgrad.graph.nodes import Node

# -------------------------------------------------------------------------------------------------
# The passes of grids: the tasks of blocks, forward and backward.
#
# The mirror of an exchange is an exchange: if a block took in a neighbour's edge, the neighbour's
# cotangent gets the edge's, as strips, in the order of the blocks.


@forward_tasks.register
def _(node: FrameNode, forward: Forward) -> None:
    block, *neighbours = forward.inputs(node)
    edges = node.build_edges(forward.tasks, neighbours)
    args = (assemble, block, edges, node.frame)
    forward.values[node] = node.build_task(forward.tasks, "value", *args)


@backward_tasks.register
def _(node: FrameNode, backward: Backward, arrived: Contribution) -> None:
    args = (pull_back_frame, arrived.cotangent, backward.forward.values[node], node.frame)
    pulled = node.build_task(backward.tasks, "backward", *args)
    send_parts(node, backward, pulled, [0], saw_value=False)


def differentiated(node: StepNode, graph: Graph) -> BlockSteps:
    """The steps, with their active inputs, the state always among them."""
    active = [source for source in graph.active_inputs(node) if 0 < source.number < node.width]
    first = Active(0, graph.is_watched)
    return node.steps._replace(active=(first, *active))


@forward_tasks.register
def _(node: StepNode, forward: Forward) -> None:
    edges = node.build_edges(forward.tasks, forward.inputs(node)[node.width :])
    build_capture(node, forward, edges, capture_block)


def build_capture(
    node: StepNode, forward: Forward, edges: list[Any], capture: Callable, *gate: Any
) -> None:
    tasks, (block, *others) = forward.tasks, forward.inputs(node)[: node.width]
    args = (*gate, tasks.shared(node.model), differentiated(node, forward.graph))
    captured = node.build_task(tasks, "forward", capture, *args, block, edges, others)
    forward.captured[node] = captured, edges
    pass_value_on(node, forward, captured)


@backward_tasks.register
def _(node: StepNode, backward: Backward, arrived: Contribution) -> None:
    if node.place is not None:
        repeat(node.place.segment, node, backward, arrived)
    steps = differentiated(node, backward.graph)
    captured, edges = backward.forward.captured[node]
    elsewhere = backward.value_elsewhere(node, arrived)
    block, *others = backward.forward.inputs(node)[: node.width]
    args = (backward.tasks.shared(node.model), steps, block, edges, others, elsewhere)
    whole = (captured, arrived.cotangent, *args)
    pulled = node.build_task(backward.tasks, "backward", pull_back_block, *whole)
    send_parts(node, backward, pulled, [source.number for source in steps.active])


def repeat(segment: Segment, last: StepNode, backward: Backward, arrived: Contribution) -> None:
    """Builds the tasks that compute the dropped states of a segment again.

    They wait for the cotangent of its last state: otherwise they would run at once, and their
    results would be kept as long as if no state had been dropped.
    """
    forward, tasks = backward.forward, backward.tasks
    if segment in backward.repeated or tasks is not forward.tasks:  # these hold all results
        return
    backward.repeated.add(segment)
    gate = last.build_task(tasks, "cotangent", has_arrived, arrived.cotangent)
    states = [node for node in forward.graph.order if is_dropped(node, segment)]
    for node in states:
        _, edges = forward.captured[node]
        if is_dropped(node.inputs[0], segment):
            edges = node.build_edges(tasks, forward.inputs(node)[node.width :])
        build_capture(node, forward, edges, capture_block_when, gate)


def is_dropped(node: Node, segment: Segment) -> bool:
    """Whether the value of a node is not kept for the backward pass of a segment."""
    return isinstance(node, StepNode) and node.place == SegmentPlace(segment, False)


def has_arrived(cotangent: Cotangent) -> bool:
    """The gate of tasks that must wait for a cotangent, but do not use it."""
    return True


def send_parts(
    node: FramedNode,
    backward: Backward,
    pulled: Any,
    active: list[int],
    saw_value: bool = True,
) -> None:
    """Sends pulled cotangents to the block, to the neighbours, and to other inputs."""

    def part(number: int) -> Any:
        return node.build_pick(backward.tasks, "cotangent", select, pulled, number)

    count = len(node.neighbours)
    for number, neighbour in reversed(list(enumerate(node.neighbours, 1))):
        backward.send(neighbour, Contribution(part(number), saw_value=False, is_item=True))
    for place, number in reversed(list(enumerate(active[1:], 1 + count))):
        backward.send(node.inputs[number], Contribution(part(place)))
    backward.send(node.inputs[0], Contribution(part(0), saw_value=saw_value))


# ------------------------------------------------------------------------------------- map_overlap

KINDS = ("periodic", "reflect", "nearest")
NO_CALL = Call((), Structure(flatten(((), {}))[1]), ())

Boundary = Any  # of one axis: a word, a number, or a pair of these


def map_overlap(
    step: Any,
    grid: Any,
    *shared: Any,
    depth: int | Sequence[int] = 1,
    boundary: Boundary | Mapping[int, Boundary] = "periodic",
    steps: int = 1,
    fuse: int = 1,
    checkpoints: int | None = None,
    name: str | None = None,
) -> Grid:
    """The grid after some steps, ``block = step(padded, *shared)``, block by block.

    A domain decomposition: before the steps each block gets the edges of its neighbours, corners
    included, and pads itself at the boundary. The derivative reverses this: the edges' cotangents
    go back to the neighbours, and are added there in a fixed order. So the bits are the same on
    every scheduler; with other blocks, or another ``fuse``, results agree to rounding.

    Parameters
    ----------
    step:
        a plain function, or a result of ``delayed``. It gets a block with ``depth`` more entries on
        either side of each axis, an array or the grid's pytree of arrays, and returns the block
        without them. If ``fuse`` is more than one, it also gets larger blocks than the grid's.
    grid:
        a result of ``dg.grid``, or a variable that is a grid.
    shared:
        further arguments: a grid of the same layout stands for its block, padded like the state,
        with edges that are sent once for all steps; anything else is the same for all blocks. May
        hold variables and other nodes.
    depth:
        the number of entries beyond its block that a step sees; for all axes, or for each.
    boundary:
        the entries beyond the whole grid: "periodic", "reflect" (mirrored, with the outermost entry
        repeated, as in Dask), "nearest" (the outermost entry), or a number. For all axes; or a dict
        by axis ("periodic" for missing ones), with a pair if the sides of an axis differ. If it is
        a number for the state, parameters on the grid are continued as "nearest".
    steps:
        the number of steps.
    fuse:
        the number of steps between two exchanges. Edges are then ``fuse * depth`` wide, and each
        block runs the steps of its halos, too: fewer messages for more work. The blocks must have
        as many entries along each axis. In the backward pass each block runs the steps between two
        exchanges again, from its value before them.
    checkpoints:
        the number of values before exchanges that are kept for the backward pass, which computes
        the others again from these. So about ``checkpoints`` values, and the values between two of
        them, are held at a time, and all blocks run their steps once more. None: all are kept, and
        Dask may spill them. Held pullbacks (``vjp``) hold all.
    name:
        its name in task keys, errors and the dashboard; the step's if not given.

    Returns
    -------
    Grid
        A grid of nodes, of the same layout.

    Raises
    ------
    TypeError
        if ``grid`` is no grid, depth, steps, fuse or checkpoints are no integers, or it is called
        inside a model.
    ValueError
        if grids have different blocks, a block is smaller than the edges that it sends, or the
        boundary is unknown; when it runs, if the step returns another shape.

    See Also
    --------
    grid, scan

    Examples
    --------
    >>> def smooth(u):  # one more entry on either side
    ...     return (u[:-2] + u[1:-1] + u[2:]) / 3
    >>> def program(u):
    ...     later = dg.map_overlap(smooth, dg.grid(u, blocks=2), steps=2, boundary="nearest")
    ...     return dg.sum(later.map(lambda block: np.sum(block**2)))
    >>> dg.value_and_grad(program)(np.array([0.0, 0.0, 9.0, 0.0]))[0]
    np.float64(23.0)
    """
    model = as_model(step, name)
    if inside_model():
        raise TypeError(
            f"map_overlap of {model.name!r} was called inside a model, which is one task; call it "
            f"where models are called, and inside a model write a loop (dg.scan) of the whole array"
        )
    state = as_grid(grid)
    if state is None:
        raise TypeError(
            f"map_overlap of {model.name!r} takes a grid; found {describe(grid)}: make one with "
            f"dg.grid(array, blocks=(2, 2))"
        )
    axes = len(state.chunks)
    depths = as_depth(depth, axes)
    sides = as_sides(boundary, axes)
    require_positive(steps, "steps")
    require_positive(fuse, "fuse")
    domain = Domain(model, state, depths, sides)
    if checkpoints is not None:
        require_positive(checkpoints, "checkpoints")
    places = places_of(math.ceil(steps / fuse), checkpoints)
    for number, place in enumerate(places):
        count = min(fuse, steps - number * fuse)
        domain.exchange(number * int(fuse), int(count), shared, place)
    return Grid(tuple(domain.blocks), state.chunks)


def places_of(exchanges: int, kept: int | None) -> list[SegmentPlace | None]:
    """The segment of the steps after each exchange; segments' lengths differ by one at most.

    The last segment needs no place: its states are still held when the backward pass begins.
    """
    if kept is None or kept >= exchanges:
        return [None] * exchanges
    bounds = [exchanges * number // kept for number in range(kept + 1)]
    places: list[SegmentPlace | None] = []
    for first, last in itertools.pairwise(bounds[:-1]):
        segment = Segment()
        places += [SegmentPlace(segment, number == last - 1) for number in range(first, last)]
    return places + [None] * (exchanges - len(places))


class Domain:
    """The blocks of a grid while steps are recorded."""

    def __init__(self, model: Model, state: Grid, depth: tuple[int, ...], sides: Sides):
        self._model = model
        self._state = state
        self._depth = depth
        self._sides = sides
        self._periodic = [pair == ("periodic", "periodic") for pair in sides]
        self.blocks: list[Any] = [as_node(block) for block in state.blocks]
        self._framed: dict[tuple[int, int], list[Any]] = {}  # parameters, by place and width

    def exchange(self, first: int, count: int, shared: tuple, place: SegmentPlace | None) -> None:
        """Records the steps of all blocks up to the next exchange."""
        layout = self._state.layout
        frames = self._frames(count)
        columns = [self._for_each_block(n, arg, frames, count) for n, arg in enumerate(shared)]
        before = self.blocks
        self.blocks = [
            StepNode(
                self._model,
                before[number],
                [before[n] for n, _ in frames[number].parts],
                tuple([column[number] for column in columns]),
                self._steps(frames[number], first, count, str(index)),
                place,
            )
            for number, index in enumerate(layout.indices())
        ]

    def _steps(self, frame: Frame, first: int, count: int, name: str) -> BlockSteps:
        ends = zip(self._sides, frame.low, frame.high, strict=True)
        sides = tuple(  # a side with a halo has a neighbour, and no boundary
            [
                (None if low_halo else low, None if high_halo else high)
                for (low, high), low_halo, high_halo in ends
            ]
        )
        fields = tuple([(continued(low), continued(high)) for low, high in sides])
        return BlockSteps(NO_CALL, frame, self._depth, sides, fields, first, count, (), name)

    def _frames(self, count: int) -> list[Frame]:
        layout, widths = self._state.layout, tuple([count * d for d in self._depth])
        for axis, (sizes, width) in enumerate(zip(layout.chunks, widths, strict=True)):
            sends = len(sizes) > 1 or self._periodic[axis]
            if sends and min(sizes) < width:
                raise ValueError(
                    f"map_overlap of {self._model.name!r}: blocks send {width} entries along axis "
                    f"{axis} (depth {self._depth[axis]}, {count} steps between exchanges), and one "
                    f"has {min(sizes)}; take fewer or larger blocks, or a smaller fuse"
                )
            if min(sizes) < self._depth[axis]:
                raise ValueError(
                    f"map_overlap of {self._model.name!r}: a block has {min(sizes)} entries, and "
                    f"cannot be continued by depth {self._depth[axis]} along axis {axis}, which "
                    f"has {sum(sizes)} entries"
                )
        return [frame_of(layout, index, widths, self._periodic) for index in layout.indices()]

    def _for_each_block(self, place: int, arg: Any, frames: list[Frame], count: int) -> list[Any]:
        grid = as_grid(arg)
        if grid is None:
            return [arg] * len(self.blocks)
        if grid.chunks != self._state.chunks:
            raise ValueError(
                f"map_overlap of {self._model.name!r} got grids of different blocks: the state "
                f"has chunks {self._state.chunks}, argument {place} {grid.chunks}; cut both alike"
            )
        if (place, count) not in self._framed:
            blocks = [as_node(block) for block in grid.blocks]
            self._framed[place, count] = [
                FrameNode(block, [blocks[n] for n, _ in frame.parts], frame, self._model.name)
                for block, frame in zip(blocks, frames, strict=True)
            ]
        return self._framed[place, count]


def continued(side: Side) -> Side:
    """The boundary of a parameter."""
    return "nearest" if isinstance(side, ConstantBoundary) else side


# ------------------------------------------------------------------------------------- arguments


def require_positive(number: Any, argument: str) -> None:
    if not is_integer(number):
        raise TypeError(f"{argument} must be an integer; found {describe(number)}")
    if number < 1:
        raise ValueError(f"{argument} must be one or more; found {number}")


def as_depth(depth: Any, axes: int) -> tuple[int, ...]:
    widths = [depth] * axes if is_integer(depth) else depth
    if not isinstance(widths, list | tuple) or not all(map(is_integer, widths)):
        raise TypeError(f"depth must be an integer, or one for each axis; found {describe(depth)}")
    if len(widths) != axes or min(widths) < 0:
        raise ValueError(
            f"depth must be zero or more, for each of {axes} axes; found {describe(depth)}"
        )
    return tuple(map(int, widths))


def as_sides(boundary: Any, axes: int) -> Sides:
    """The boundary of each axis, on both sides."""
    if isinstance(boundary, Mapping):
        unknown = [axis for axis in boundary if axis not in range(axes)]
        if unknown:
            raise ValueError(
                f"the axes of the boundary must be among 0 to {axes - 1}; found {unknown[0]!r}"
            )
        return tuple([pair_of(boundary.get(axis, "periodic")) for axis in range(axes)])
    return tuple([pair_of(boundary)] * axes)


def pair_of(boundary: Any) -> tuple[Side, Side]:
    is_pair = isinstance(boundary, tuple) and len(boundary) == 2
    low, high = map(side_of, boundary if is_pair else (boundary, boundary))
    if "periodic" in (low, high) and low != high:
        raise ValueError(f"an axis is periodic on both sides or on none; found {boundary!r}")
    return low, high


def side_of(boundary: Any) -> Side:
    if isinstance(boundary, str) and boundary in KINDS:
        return boundary
    if is_number(boundary):
        return ConstantBoundary(float(boundary))
    raise ValueError(
        f"the boundary must be 'periodic', 'reflect', 'nearest' or a number, by axis or for all; "
        f"found {describe(boundary)}"
    )
