"""Block pullbacks: those of a block whose terms are arrays, kept side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.models.captured import Pullback, Travelling
from daskgrad.models.travel import policy
from daskgrad.sums.item_cotangents import Gathered, Widths
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Leaves
from daskgrad.values.summation import Add


class Terms(Travelling):
    """The pullback of a sum of terms that are not scalars: each term's own, in order.

    ``widths`` has for each term the numbers of leaves of its item's differentiated fields; ``add``
    adds two cotangents.
    """

    __slots__ = ("_add", "are_rows", "pullbacks", "widths")

    def __init__(
        self,
        pullbacks: Sequence[Any] = (),
        widths: Sequence[Widths] = (),
        are_rows: Sequence[bool] = (),
        add: Add = cotangents.add,
    ):
        super().__init__()
        self.pullbacks = pullbacks
        self.widths = widths
        self.are_rows = are_rows
        self._add = add

    def __repr__(self) -> str:
        return f"Terms({len(self.pullbacks)} pullbacks)"

    def tapes(self) -> list[Any]:
        return [pullback.tape for pullback in self._with_tapes()]

    def contents(self) -> tuple[Any, ...]:
        parts = [p.contents() if isinstance(p, Pullback) else p for p in self.pullbacks]
        return parts, self.widths, self.are_rows, self._add

    def _with_tapes(self) -> list[Pullback]:
        return [pullback for pullback in self.pullbacks if isinstance(pullback, Pullback)]

    def measured(self) -> policy.Measured:
        each = [pullback.measured() for pullback in self._with_tapes()]
        nbytes, steps, seconds = map(sum, zip(*each, strict=True))
        return policy.Measured(nbytes, steps, seconds)

    def restore(self, contents: tuple[Any, ...]) -> None:
        parts, self.widths, self.are_rows, self._add = contents
        self.pullbacks = [Pullback(*p) if isinstance(p, tuple) else p for p in parts]

    def __sizeof__(self) -> int:
        held = 0 if self._packed is None else self._packed.nbytes
        return object.__sizeof__(self) + held + sum([p.__sizeof__() for p in self.pullbacks])

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        if self._packed is not None:
            return False
        return not self.pullbacks or any(pullback.is_empty for pullback in self._with_tapes())

    def __call__(
        self, cotangent: Leaves, look: Callable[[int, Leaves], None] | None = None
    ) -> tuple[Leaves, tuple[Leaves, ...]]:
        """The cotangents of the shared inputs, added up, and those of the items, side by side.

        ``look`` is called with what each term returned, and its number.
        """
        gathered = Gathered(self.are_rows, self._add)
        for number, (pullback, widths) in enumerate(zip(self.pullbacks, self.widths, strict=True)):
            leaves = pullback.of_term(cotangent)
            if look is not None:
                look(number, leaves)
            gathered.push(leaves, widths)
        return gathered.total()
