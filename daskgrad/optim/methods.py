"""Methods: the rules of optimisers, with adaptive rates, momentum, or plain descent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from daskgrad.autodiff.values.descriptions import require_choice
from daskgrad.optim.optimiser import Optimiser, Rate

Bias = Literal["row", "global"]
EPS = {"eps": ("eps", 0.0)}  # the range of a setting: its name in errors, and its least value


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """s += g**2; x -= rate * g / (sqrt(s) + eps).

    J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization", JMLR 12, 2011.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.Adagrad(0.5)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.5, -1.5])
    """

    rate: Rate = 1e-2
    eps: float = 1e-10
    slots = ("s",)
    ranges = EPS

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        (s,) = slots
        s += g * g
        return rate * g / (np.sqrt(s) + self.eps)


@dataclass(frozen=True)
class RMSprop(Optimiser):
    """s = decay * s + (1 - decay) * g**2; x -= rate * g / (sqrt(s) + eps).

    T. Tieleman, G. Hinton, "Lecture 6.5: RMSProp", Coursera, 2012.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.RMSprop(0.05)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.5, -1.5])
    """

    rate: Rate = 1e-2
    decay: float = 0.99
    eps: float = 1e-8
    slots = ("s",)
    ranges: ClassVar[Mapping[str, tuple]] = {"decay": ("the decay", 0.0, 1.0), **EPS}

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        (s,) = slots
        s *= self.decay
        s += (1.0 - self.decay) * (g * g)
        return rate * g / (np.sqrt(s) + self.eps)


@dataclass(frozen=True)
class Adam(Optimiser):
    """m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g**2;
    x -= rate * (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps), at an entry's step t = 1, 2, ...

    D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015. With ``Rows`` and
    ``bias="row"``, t is the number of steps that an entry occurs in, so that its first step is as
    long as dense Adam's; with ``bias="global"``, the number of all steps, as in the lazy Adam of
    PyTorch and TensorFlow, where an entry's first step at step 1,000 is 2.5 times as long.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.Adam(0.1)
    >>> state = optimiser.init(x)
    >>> for _ in range(300):
    ...     optimiser.update(x, dg.grad(dg.delayed(lambda x: np.sum(x**2)))(x), state)
    >>> bool(np.all(np.abs(x) < 0.1))
    True
    """

    rate: Rate = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    bias: Bias = "row"
    slots = ("m", "v")
    ranges: ClassVar[Mapping[str, tuple]] = {"b1": ("b1", 0.0, 1.0), "b2": ("b2", 0.0, 1.0), **EPS}

    def __post_init__(self) -> None:
        Optimiser.__post_init__(self)
        require_choice(self.bias, get_args(Bias), "bias")

    @property
    def counts_steps(self) -> bool:  # type: ignore[override]
        return self.bias == "row"

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        m, v = slots
        m *= self.b1
        m += (1.0 - self.b1) * g
        v *= self.b2
        v += (1.0 - self.b2) * (g * g)
        first, second = corrections((self.b1, self.b2), steps, m.dtype)
        return rate * (m / first) / (np.sqrt(v / second) + self.eps)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam, with decay of the parameters apart from the gradient: ``x *= 1 - rate * decay`` first.

    I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019. With ``Rows``
    only the entries that occur decay.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.AdamW(0.1)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.899, -1.898])
    """

    decay: float = 1e-2
    ranges: ClassVar[Mapping[str, tuple]] = {**Adam.ranges, "decay": ("the decay", 0.0)}

    def take(self, pairs: Iterable[tuple[np.ndarray, np.ndarray]], rate: float) -> None:
        for x, step in pairs:
            x *= 1.0 - rate * self.decay
            x -= step


def corrections(bases: Sequence[float], steps: np.ndarray, dtype: np.dtype) -> list[np.ndarray]:
    """1 - base**steps for each base. The powers are Python's: NumPy's may differ in a bit."""
    counts, places = np.unique(steps, return_inverse=True)
    tables = [np.array([1.0 - b ** int(count) for count in counts], dtype) for b in bases]
    return [table[places].reshape(steps.shape) for table in tables]


# -------------------------------------------------------------------------------------------------
# Descent: steps along the gradient, with and without momentum.


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent: x -= rate * g.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.SGD(0.25)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.5, -1. ])
    """

    rate: Rate = 1e-2

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        return rate * g


@dataclass(frozen=True)
class Momentum(Optimiser):
    """Gradient descent with momentum: v = momentum * v + g; x -= rate * v.

    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
    form of I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013, with the rate outside of v.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.Momentum(0.05)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.9, -1.8])
    """

    rate: Rate = 1e-2
    momentum: float = 0.9
    slots = ("v",)
    ranges: ClassVar[Mapping[str, tuple]] = {"momentum": ("the momentum", 0.0, 1.0)}

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        (v,) = slots
        v *= self.momentum
        v += g
        return rate * v


@dataclass(frozen=True)
class Nesterov(Momentum):
    """Gradient descent with Nesterov's momentum: v = momentum * v + g;
    x -= rate * (g + momentum * v).

    Y. Nesterov, "A method for solving the convex programming problem with convergence rate
    O(1/k^2)", 1983, in the form of Sutskever et al. 2013, with the rate outside of v.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.Nesterov(0.05)
    >>> optimiser.update(x, 2.0 * x, optimiser.init(x))
    >>> np.round(x, 3)
    array([ 0.81, -1.62])
    """

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        (v,) = slots
        v *= self.momentum
        v += g
        return rate * (g + self.momentum * v)
