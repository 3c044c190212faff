"""Running what was built: what is known is not computed, and what was lost is repeated."""

from collections.abc import Callable, Sequence
from typing import Any

from distributed import CancelledError

from daskgrad.cotangents import Cotangent
from daskgrad.graph import Graph
from daskgrad.reduction import ReductionNode
from daskgrad.resident.evaluation import ArrayTermsError

ATTEMPTS = 10  # how often an evaluation is repeated after placed items were lost


def known_or(compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]) -> list[Any]:
    """What references stand for: computed, unless it is a cotangent, which is known already.

    That is the cotangent of an output that is itself a variable.
    """
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent)]
    computed = iter(compute(keys))
    return [ref if isinstance(ref, Cotangent) else next(computed) for ref in references]


def repeated(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] = lambda: None
) -> Any:
    """Evaluates; where placed items were lost with a worker, places them again and repeats.

    ``prepare`` is called before each repetition.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    for _ in range(ATTEMPTS):
        try:
            return evaluate()
        except ArrayTermsError as error:
            for shards in placed:
                shards.array_valued.add(str(error))
        except CancelledError:
            if not placed:
                raise
            for shards in placed:
                shards.restore()  # unless another evaluation has done so already
            prepare()
    return evaluate()
