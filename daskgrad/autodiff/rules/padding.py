"""Padding: the modes of ``np.pad``; autograd has a rule for one of them."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import Refusal, equivalent, plain, shape_of
from daskgrad.autodiff.rules.manipulation import places_of
from daskgrad.autodiff.rules.twins import composed, within

REPEATED = ("edge", "reflect", "symmetric", "wrap")  # modes that repeat entries


@equivalent(
    anp.pad,
    needed=lambda array, pad_width, mode=None, **kwargs: (
        mode != "constant" or isinstance(pad_width, dict)
    ),
    keywords="pad_width mode constant_values reflect_type stat_length end_values",
)
def pad(array, pad_width, mode="constant", **kwargs):
    """One axis after the other, as NumPy does: the next one counts earlier padding, too."""
    is_odd = kwargs.get("reflect_type", "even") != "even"
    if mode in REPEATED and not is_odd:
        return anp.ravel(array)[np.pad(places_of(array), pad_width, mode, **kwargs)]
    mode = (mode, "odd") if is_odd else mode
    if mode not in SIDES:
        options = "".join([f", {name}={value!r}" for name, value in kwargs.items()])
        known = [*REPEATED, *[name for name in SIDES if isinstance(name, str)]]
        raise Refusal(
            f"np.pad has no derivative rule for mode={mode!r}{options}; concatenate the padding "
            f"and the array, or use one of {known}"
        )
    option = None if is_odd else next(iter(kwargs.values()), None)
    for axis, widths in enumerate(widths_of(array, pad_width)):
        array = anp.moveaxis(array, axis, -1)
        first, last = (of_side(option, axis, number) for number in range(2))
        before = SIDES[mode](array, widths[0], first)
        after = SIDES[mode](array[..., ::-1], widths[1], last)[..., ::-1]
        array = anp.moveaxis(anp.concatenate([before, array, after], axis=-1), -1, axis)
    return array


def widths_of(array: Any, pad_width: Any) -> np.ndarray:
    """The numbers of entries before and after the array, for each axis."""
    shape = (np.ndim(plain(array)), 2)
    if not isinstance(pad_width, dict):
        return np.broadcast_to(pad_width, shape)
    widths = np.zeros(shape, int)
    for axis, width in pad_width.items():
        widths[axis] = width
    return widths


def of_side(option, axis, number):
    """A keyword's value for one side of an axis: for all, for (before, after), or by axes."""
    if option is None:
        return None
    option = anp.array(option)
    shape = shape_of(option)
    row = option[min(axis, shape[0] - 1)] if len(shape) == 2 else option
    shape = shape_of(row)
    return row[min(number, shape[0] - 1)] if shape else row


def constant(array, width, value):
    return ones(array, width) * (0.0 if value is None else value)


def linear_ramp(array, width, end):
    end = 0.0 if end is None else end
    return end + (array[..., :1] - end) * (np.arange(width) / max(width, 1))


def odd(skipped: int) -> Callable:
    """The reflection at the point of the first entry, which is repeated or ``skipped``."""

    def padding(array, width, option):
        if width > shape_of(array)[-1] - skipped:
            raise Refusal(
                "np.pad has no derivative rule for reflect_type='odd' where the padding is wider "
                "than the array; pad by less, several times"
            )
        return 2.0 * array[..., :1] - array[..., skipped : width + skipped][..., ::-1]

    return padding


def statistic(fun: Callable) -> Callable:
    def padding(array, width, length):
        part = array if length is None else array[..., : int(plain(length))]
        return ones(array, width) * fun(part)[..., None]

    return padding


def ones(array: Any, width: int) -> np.ndarray:
    return np.ones((*shape_of(array)[:-1], width), plain(array).dtype)


SIDES: dict[Any, Callable] = {  # mode -> the padding before the last axis
    "constant": constant,
    ("reflect", "odd"): odd(1),
    ("symmetric", "odd"): odd(0),
    "linear_ramp": linear_ramp,
    "maximum": statistic(lambda part: anp.max(part, axis=-1)),
    "minimum": statistic(lambda part: anp.min(part, axis=-1)),
    "mean": statistic(lambda part: anp.mean(part, axis=-1)),
    "median": statistic(lambda part: anp.median(part, axis=-1)),
}


@composed(np.pad)
def pad_with(array, pad_width, mode="constant", **kwargs):
    """With traced numbers around the array, too."""
    if mode in SIDES and any(map(within, kwargs.values())):
        return pad(anp.array(array), pad_width, mode, **kwargs)
    if not isbox(array):
        array = anp.array(array)
    return anp.pad(array, pad_width, mode, **kwargs)
