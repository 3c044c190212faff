"""Descent: steps along the gradient, with and without momentum."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskgrad.optim.optimiser import Optimiser, Rate, require_number


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent: x -= rate * g.

    Examples
    --------
    >>> x, optimiser = np.array([1.0, -2.0]), dg.optim.SGD(0.25)
    >>> state = optimiser.init(x)
    >>> for _ in range(300):
    ...     optimiser.update(x, dg.grad(dg.delayed(lambda x: np.sum(x**2)))(x), state)
    >>> bool(np.all(np.abs(x) < 0.1))
    True
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
    >>> state = optimiser.init(x)
    >>> for _ in range(300):
    ...     optimiser.update(x, dg.grad(dg.delayed(lambda x: np.sum(x**2)))(x), state)
    >>> bool(np.all(np.abs(x) < 0.1))
    True
    """

    rate: Rate = 1e-2
    momentum: float = 0.9
    slots: ClassVar[tuple[str, ...]] = ("v",)

    def __post_init__(self) -> None:
        Optimiser.__post_init__(self)
        require_number(self.momentum, "the momentum", 0.0, 1.0)

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
    >>> state = optimiser.init(x)
    >>> for _ in range(300):
    ...     optimiser.update(x, dg.grad(dg.delayed(lambda x: np.sum(x**2)))(x), state)
    >>> bool(np.all(np.abs(x) < 0.1))
    True
    """

    def rule(self, g: np.ndarray, rate: float, steps: np.ndarray, *slots: np.ndarray) -> np.ndarray:
        (v,) = slots
        v *= self.momentum
        v += g
        return rate * (g + self.momentum * v)
