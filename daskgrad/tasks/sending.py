"""What cannot be sent to another process, named: Dask's own error names neither task nor model."""

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import cloudpickle

ADVICE = "open files, locks and connections where they are used, or pass what makes them"


@contextlib.contextmanager
def named_if_unsendable(parts: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """TypeError that names the first part, of (name, value), that cannot be pickled.

    For what goes to other processes; only a failure looks at the parts. If all of them can be
    pickled, as where a model raised the error, it is raised as it is.
    """
    try:
        yield
    except (TypeError, pickle.PicklingError):
        for name, value in parts:
            if cause := reason_against_pickling(value):
                what = f"{name} cannot be sent to another process"
                raise TypeError(f"{what}: {cause}; {ADVICE}") from cause
        raise


def reason_against_pickling(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None
