"""fit: minima of ``flat`` and ``flat_residuals`` with standard errors, as a table."""

import sys
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from daskgrad import adapters
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import imported, seconds, table

AT_BOUND = 1e-6  # of a parameter, or of the width of its bounds: nearer is at the bound
NEAR = 0.1  # standard errors from a minimum
LARGE = 0.9  # correlations that are named
LEVEL = 0.95  # of confidence
INNER = ("daskgrad", "functools")  # whose lines no warning names
STEP, FARTHEST = 0.5, 12  # standard errors between points of a profile, and steps to each side


class Fit:
    """A minimum that SciPy has found. Its attributes are SciPy's (``x``, ``success``, ``nfev``
    ...), and these:

    ``parameters``: the pytree; ``names`` and ``estimates``: its entries in a vector; ``errors``:
    their standard errors, ``nan`` at a bound; ``covariance``, ``correlations``; ``value``: of the
    function, or half the sum of squares; ``gradient_norm``: of the entries that are free;
    ``distance``: to the minimum by Newton's step, in standard errors; ``seconds`` on the clock;
    ``warnings``: all that speaks against it.

    Standard errors are made when they are first asked for, as ``flat.covariance`` does: with a
    product with the Hessian for each entry. There are none, ``nan``, if a constraint is active or
    an equality, and for a robust ``loss``.
    """

    def __init__(
        self,
        problem: Any,
        result: Any,
        method: str,
        bounds: Any,
        seconds: float,
        obstacle: str | None = None,
        is_constrained: bool = False,
    ):
        self._problem, self._bounds, self._obstacle = problem, bounds, obstacle
        self._is_constrained = is_constrained
        self._warnings: list[str] = []
        self.result, self.method, self.seconds = result, method, seconds
        self.names: list[str] = problem.names
        if not result.success:
            self._warn(f"SciPy's {method} did not converge: {result.message}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "result" not in vars(self):
            raise AttributeError(f"'Fit' object has no attribute {name!r}")
        return getattr(self.result, name)

    @property
    def parameters(self) -> Any:
        return self._problem.unravel(self.result.x)

    @property
    def estimates(self) -> np.ndarray:
        return self.result.x * self._problem.scale

    @property
    def value(self) -> float:
        return self._problem.least(self.result)

    @property
    def warnings(self) -> list[str]:
        _ = self._computed
        return [*self._warnings]

    def _warn(self, message: str) -> None:
        self._warnings.append(message)
        frame, level = sys._getframe(), 1
        while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in INNER:
            frame, level = frame.f_back, level + 1
        warnings.warn(f"fit of {self._problem.name!r}: {message}", stacklevel=level)

    @cached_property
    def at_bound(self) -> np.ndarray:
        """Whether each entry stands at one of its bounds."""
        x = self.result.x
        if self._bounds is None:
            return np.zeros(len(x), bool)
        low, high = limits_of(self._bounds, len(x))
        width = np.where(np.isfinite(high - low), high - low, np.maximum(1.0, np.abs(x)))
        return np.minimum(x - low, high - x) <= AT_BOUND * width

    @cached_property
    def _computed(self) -> tuple[np.ndarray, float, float]:
        """The covariance, the norm of the gradient, and the distance to the minimum."""
        problem, x, free = self._problem, self.result.x, ~self.at_bound
        slope = problem.slope(self.result)[free]
        norm, count = float(np.linalg.norm(slope)), len(x)
        covariance = np.full((count, count), np.nan)
        if not free.all():
            names = ", ".join([self.names[n] for n in np.flatnonzero(~free)])
            self._warn(f"at a bound, and without a standard error: {names}")
        if self._obstacle:
            self._warn(f"no standard errors: {self._obstacle}")
        if self._obstacle or not free.any():
            return covariance, norm, np.nan
        try:
            inner, message = problem.free_covariance(x, free)
        except (ValueError, np.linalg.LinAlgError) as error:
            reason = "a constraint is active, or " if self._is_constrained else ""
            self._warn(f"no standard errors: {reason}{error}")
            return covariance, norm, np.nan
        scaled = inner / np.outer(problem.scale[free], problem.scale[free])
        distance = float(np.sqrt(slope @ scaled @ slope) / problem.variance(x))
        if distance > NEAR and self._is_constrained:
            self._warn("no standard errors: a constraint is active")
            return covariance, norm, distance
        if distance > NEAR:
            self._warn(
                f"the minimum is {distance:.2g} standard errors away, by Newton's step: go on "
                f"with fit(x0=fit.x), or with another method or scale"
            )
        if message:
            self._warn(message)
        covariance[np.ix_(free, free)] = inner
        return covariance, norm, distance

    covariance = property(lambda self: self._computed[0])
    gradient_norm = property(lambda self: self._computed[1])
    distance = property(lambda self: self._computed[2])

    @property
    def errors(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlations(self) -> np.ndarray:
        return self.covariance / np.outer(self.errors, self.errors)

    # ------------------------------------------------------------------------------- how it shows

    def _head(self) -> str:
        result = self.result
        calls = [f"{result[name]} {word}" for name, word in CALLS.items() if name in result]
        state = "converged" if result.success else "not converged"
        parts = [state, *calls, seconds(self.seconds), f"|gradient| {self.gradient_norm:.2g}"]
        what = f"{self._problem.kind} of {self._problem.name!r}: {self.value:.8g}"
        return f"{what} ({self.method}: {', '.join(parts)})"

    def _rows(self) -> list[tuple[str, str, str]]:
        marks = np.where(self.at_bound, "at a bound", "")
        triples = zip(self.names, self.estimates, self.errors, marks, strict=True)
        return [(name, f"{x:.6g}", str(mark) or f"{error:.3g}") for name, x, error, mark in triples]

    def _notes(self) -> list[str]:
        with np.errstate(invalid="ignore"):
            large = np.argwhere(np.triu(np.abs(self.correlations), 1) > LARGE)
        pairs = [
            f"{self.names[a]} and {self.names[b]} {self.correlations[a, b]:+.3f}" for a, b in large
        ]
        correlated = [f"correlated: {'; '.join(pairs)}"] if pairs else []
        return correlated + [f"warning: {message}" for message in self.warnings]

    def __repr__(self) -> str:
        rows = [HEAD, *self._rows()]
        first, second, third = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{a:<{first}}  {b:>{second}}  {c:>{third}}" for a, b, c in rows]
        return "\n".join([self._head(), *lines, *self._notes()])

    def _repr_html_(self) -> str:
        notes = table("", ("notes",), [(note,) for note in self._notes()])
        return table(self._head(), HEAD, self._rows()) + notes

    def to_frame(self) -> Any:
        """The table as a pandas ``DataFrame``, a row for each name."""
        pandas = imported("pandas", "pandas", "a frame is pandas'")
        columns = {
            "estimate": self.estimates,
            "standard_error": self.errors,
            "at_bound": self.at_bound,
        }
        return pandas.DataFrame(columns, index=pandas.Index(self.names, name="parameter"))

    # -------------------------------------------------------------------------------- from here on

    def sample(self, **settings: Any) -> Any:
        """Draws from the density whose negative logarithm was minimised, beginning at the minimum;
        ``settings`` and the result are ``dg.adapters.sample``'s.

        TypeError for a fit of residuals, which name no density.
        """
        return adapters.sample(self._problem.log_density(), self.parameters, **settings)

    def profile(self, name: str) -> "Profile":
        """How the least value grows as one entry is moved away and all others are minimised again
        (D. M. Bates and D. G. Watts, Nonlinear Regression Analysis, 1988, section 6.1).

        Some twenty minimisations, each from the one before.

        Raises
        ------
        KeyError
            if no entry has the name.
        ValueError
            if the entry has no standard error, which is the unit of the steps, or the fit has
            constraints.
        """
        if name not in self.names:
            raise KeyError(f"no parameter is called {name!r}; there are {', '.join(self.names)}")
        place = self.names.index(name)
        error = self.errors[place] / self._problem.scale[place]
        if not np.isfinite(error):
            raise ValueError(
                f"{name} has no standard error, which is the unit of the profile's steps: "
                f"{'; '.join(self.warnings)}"
            )
        if self._is_constrained:
            raise ValueError(
                "a profile has no constraints, which this fit has: write bounds instead"
            )
        quantile = self._problem.quantile(self.result.x, 0.5 + LEVEL / 2)
        below, above = [self._side(place, side * error, quantile) for side in (-1.0, 1.0)]
        points = [*below[::-1], (self.result.x[place], 0.0), *above]
        values, roots = np.array(points).T
        return Profile(name, values * self._problem.scale[place], roots, quantile)

    def _side(self, place: int, error: float, quantile: float) -> list[tuple[float, float]]:
        """The points of a profile on one side, from the minimum outwards."""
        problem, x, bounds = self._problem, self.result.x, self._bounds
        variance, low, high = problem.variance(x), -np.inf, np.inf
        if bounds is not None:
            low, high = [ends[place] for ends in limits_of(bounds, len(x))]
        sides: list[tuple[float, float]] = []
        others, step = np.delete(x, place), STEP * error
        for number in range(1, FARTHEST + 1):
            at = x[place] + number * step
            if not low <= at <= high:
                break
            others, least = problem.minimised_with(place, at, others, bounds)
            rise = (least - self.value) / variance
            if rise < -1e-6 * max(1.0, abs(self.value)):
                self._warn(f"a lower value, {least:.8g}, was found beside it: it is no minimum")
            sides.append((at, np.sign(error) * np.sqrt(max(2.0 * rise, 0.0))))
            if abs(sides[-1][1]) > 1.2 * quantile:
                break
        return sides


CALLS = {"nfev": "evaluations", "njev": "gradients", "nhev": "Hessians", "nit": "iterations"}
HEAD = ("parameter", "estimate", "standard error")


class Profile(NamedTuple):
    """The profile of a parameter: its ``values``, and the signed ``roots`` of twice the rise of the
    least value at each; a straight line where standard errors hold. ``quantile``: the root at the
    ends of ``interval``."""

    name: str
    values: np.ndarray
    roots: np.ndarray
    quantile: float

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of level 95 %; infinite on a side that the profile does not
        reach."""
        low, high = self.roots[0] <= -self.quantile, self.roots[-1] >= self.quantile
        ends = np.interp([-self.quantile, self.quantile], self.roots, self.values)
        return (float(ends[0]) if low else -np.inf, float(ends[1]) if high else np.inf)


# -------------------------------------------------------------------------------------------------
# Problems: what is minimised, of a vector; a fit asks them.


class Minimum:
    """A function whose value is minimised, as if it were minus a log density."""

    kind = "minimum"

    def __init__(self, flat: Any, fun: Callable, raveling: Any):
        self._flat, self._fun = flat, fun
        self.name, self.names, self.scale = raveling.name, raveling.names, raveling.scale
        self.unravel = raveling.unravel

    def run(self, x0: np.ndarray, method: str | None, bounds: Any, **options: Any) -> Fit:
        optimize = scipys("optimize")
        constraints = [*np.atleast_1d(options.get("constraints", ()))]
        if method is None:
            method = "SLSQP" if constraints else "BFGS" if bounds is None else "L-BFGS-B"
        if method.lower() in WITH_PRODUCTS:
            options = {"hessp": self._flat.hessp, **options}
        elif method.lower() in WITH_HESSIANS:
            options = {"hess": self._flat.hessian, **options}
        options |= {"method": method, "bounds": bounds}
        begin = clock.seconds()
        result = optimize.minimize(self._flat, x0, jac=True, **options)
        is_equality = any(map(holds_an_equality, constraints))
        obstacle = "they are not for constraints that are equalities" if is_equality else None
        seconds = clock.seconds() - begin
        return Fit(self, result, method, bounds, seconds, obstacle, bool(constraints))

    def least(self, result: Any) -> float:
        return float(result.fun)

    def slope(self, result: Any) -> np.ndarray:
        return self._flat(result.x)[1]

    def variance(self, x: np.ndarray) -> float:
        return 1.0

    def quantile(self, x: np.ndarray, probability: float) -> float:
        return float(scipys("special").ndtri(probability))

    def free_covariance(self, x: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, str | None]:
        return self._flat._covariance(x, free)

    def minimised_with(
        self, place: int, at: float, others: np.ndarray, bounds: Any
    ) -> tuple[np.ndarray, float]:
        """The other entries, minimised with one held, and the least value."""
        optimize = scipys("optimize")

        def both(inner: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._flat(np.insert(inner, place, at))
            return value, np.delete(gradient, place)

        if not len(others):
            return others, both(others)[0]
        result = optimize.minimize(both, others, jac=True, bounds=without(bounds, place, others))
        return result.x, float(result.fun)

    def log_density(self) -> Callable:
        return lambda tree: -self._fun(tree)


WITH_PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
WITH_HESSIANS = ("dogleg", "trust-exact")


def scipys(module: str) -> Any:
    return imported(f"scipy.{module}", "scipy", "a fit is SciPy's")


def holds_an_equality(constraint: Any) -> bool:
    if isinstance(constraint, dict):
        return constraint["type"].lower() == "eq"
    return bool(np.any(np.equal(constraint.lb, constraint.ub)))


class LeastSquares:
    """Residuals, whose sum of squares is minimised."""

    kind = "half the sum of squares"

    def __init__(self, flat: Any, raveling: Any):
        self._flat = flat
        self.name, self.names, self.scale = raveling.name, raveling.names, raveling.scale
        self.unravel = raveling.unravel

    def run(self, x0: np.ndarray, method: str | None, bounds: Any, **options: Any) -> Fit:
        optimize = scipys("optimize")
        options = {"method": method or "trf", "jac": self._flat.jacobian, **options}
        limits = {} if bounds is None else {"bounds": bounds}
        begin = clock.seconds()
        result = optimize.least_squares(self._flat, x0, **limits, **options)
        is_robust = options.get("loss", "linear") != "linear"
        obstacle = "they are for loss='linear'" if is_robust else None
        return Fit(self, result, options["method"], bounds, clock.seconds() - begin, obstacle)

    def least(self, result: Any) -> float:
        return float(result.cost)

    def slope(self, result: Any) -> np.ndarray:
        return result.grad

    def variance(self, x: np.ndarray) -> float:
        residuals = self._flat(x)
        return float(residuals @ residuals) / max(len(residuals) - len(x), 1)

    def quantile(self, x: np.ndarray, probability: float) -> float:
        freedom = len(self._flat(x)) - len(x)
        return float(scipys("special").stdtrit(freedom, probability))

    def free_covariance(self, x: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, str | None]:
        return self._flat._covariance(x, free), None

    def minimised_with(
        self, place: int, at: float, others: np.ndarray, bounds: Any
    ) -> tuple[np.ndarray, float]:
        optimize = scipys("optimize")

        def residuals(inner: np.ndarray) -> np.ndarray:
            return self._flat(np.insert(inner, place, at))

        def jacobian(inner: np.ndarray) -> np.ndarray:
            return np.delete(self._flat.jacobian(np.insert(inner, place, at)), place, axis=1)

        if not len(others):
            return others, 0.5 * float(np.sum(residuals(others) ** 2))
        inner_bounds = without(bounds, place, others)
        limits = {} if inner_bounds is None else {"bounds": inner_bounds}
        result = optimize.least_squares(residuals, others, jac=jacobian, **limits)
        return result.x, float(result.cost)

    def log_density(self) -> Callable:
        raise TypeError(
            f"the residuals of {self.name!r} name no density to draw from; write minus its "
            f"logarithm as a function of the parameters, flat, x, _ = dg.adapters.flat(fun, tree), "
            f"and flat.fit().sample()"
        )


def without(bounds: Any, place: int, others: np.ndarray) -> Any:
    """The bounds of the other entries."""
    if bounds is None:
        return None
    ends = [np.delete(end, place) for end in limits_of(bounds, len(others) + 1)]
    return scipys("optimize").Bounds(*ends)


def limits_of(bounds: Any, count: int) -> list[np.ndarray]:
    """The lower and the upper bound of each entry."""
    return [np.broadcast_to(ends, (count,)) for ends in (bounds.lb, bounds.ub)]


def as_bounds(bounds: Any) -> Any:
    """SciPy's ``Bounds``, of whatever SciPy takes."""
    if bounds is None or hasattr(bounds, "lb"):
        return bounds
    pairs = [
        (-np.inf if low is None else low, np.inf if high is None else high) for low, high in bounds
    ]
    return scipys("optimize").Bounds(*np.array(pairs, float).T)


def as_vector(x0: Any, raveling: Any, start: np.ndarray) -> np.ndarray:
    """A start as a vector: given as one, or as a pytree; by default the first point."""
    if x0 is None:
        return start
    if isinstance(x0, np.ndarray) and x0.shape == start.shape:
        return x0
    return raveling.ravel(x0) / raveling.scale
