"""The pickler: cloudpickle, which leaves arrays their layout, and the client's classes alone."""

from typing import Any

import cloudpickle
import numpy as np

from daskgrad.backends.pickling import classes
from daskgrad.backends.pickling.arrays import reduce_array, reduce_dtype

classes.install()


class Pickler(cloudpickle.Pickler):
    """cloudpickle, for arrays with their layout and NumPy's own dtypes.

    ``most``: a view goes by the memory that it shows if that is at most so many times its size.
    """

    most = 2.0

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._kept: dict[Any, np.ndarray] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            return reduce_array(obj, self.most, self._kept)
        if isinstance(obj, np.dtype):
            return reduce_dtype(obj)
        return super().reducer_override(obj)
