"""In place: functions of plain NumPy that write into an array, which a trace cannot record."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.backends.autograd.rules.twins import composed


def refuse(fun: Callable, instead: str) -> None:
    @composed(fun)
    def twin(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"np.{fun.__name__} writes into an array, which has no derivative where a value or "
            f"the array is traced (an ArrayBox); {instead}"
        )


for fun in (np.put, np.place, np.putmask, np.copyto, np.put_along_axis):
    refuse(fun, "make a new array: np.where(mask, values, array)")
refuse(np.fill_diagonal, "make a new array: np.where(np.eye(n, dtype=bool), values, array)")
