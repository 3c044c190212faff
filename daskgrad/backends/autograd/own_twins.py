"""Own twins: tells plain calls of the twins that the rules have for functions of NumPy."""

from daskgrad.backends.autograd import plain_calls
from daskgrad.backends.autograd.rules.twins import TWINS


def install() -> None:
    plain_calls.TWINS.update(TWINS)
