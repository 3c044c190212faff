"""flat: a function of a pytree as one of a vector, for SciPy's minimisers."""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from daskgrad.adapters.fits import Fit, LeastSquares, Minimum, as_bounds, as_vector
from daskgrad.autodiff.values.descriptions import imported, require_choice
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import Raveling, epsilon
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.gradient import value_and_grad
from daskgrad.derivatives.hessian import hessian, hvp
from daskgrad.derivatives.inputs import as_output, require_differentiable
from daskgrad.derivatives.jacobian import jacobian
from daskgrad.derivatives.jvp import jvp
from daskgrad.derivatives.objectives import Objective, RecordedValue
from daskgrad.derivatives.vjp import vjp
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node

APART = 1e-10  # of the terms of an entry of a Hessian's product: less is taken for rounding
FAR = 0.5  # standard errors between two maxima: less is taken for one
Kind = Literal["observed", "gauss-newton"]
KINDS = ("observed", "gauss-newton")


class Flat:
    """A function of a vector, with its derivatives."""

    def __init__(self, fun: Callable, raveling: Raveling, start: np.ndarray):
        self._fun, self._raveling, self._start = fun, raveling, start
        self._both = value_and_grad(fun)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        value, gradient = self._both(self._raveling.unravel(x))
        return float(value), self._raveling.scale * self._raveling.ravel(gradient)

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The Hessian times a vector, for ``minimize(..., hessp=flat.hessp)``."""
        point, direction = self._raveling.unravel(x), self._raveling.direction(p)
        _, (product,) = hvp(self._fun, (point,), (direction,))
        return self._raveling.scale * self._raveling.ravel(product)

    @property
    def names(self) -> list[str]:
        """The name of each entry of the vector: ``slope``, ``offsets[3]``, ``layers.0.w[1, 2]``."""
        return self._raveling.names

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """The matrix of second derivatives by the entries of the vector: by parameters, times the
        ``scale`` of both.

        A dense array, also if most of it is zero. Costs a product with the Hessian for each entry;
        for ``q`` parameters of each of ``n`` items beside ``s`` shared ones only ``s + q + 1``, if
        that is less than half. So it is if most entries stand in leaves of ``n`` rows, and entries
        in different rows do not meet, which the last product tests; whether the function has one
        sum over them or several, zipped or not, does not matter. A prior that couples items (a
        random walk, a sum that must be zero) costs all products besides.
        """
        rows, columns = self._raveling.rows()
        shared = np.flatnonzero(rows < 0)
        if 2 * (len(shared) + columns.max() + 2) < self._raveling.size:
            matrix = self._arrow(x, rows, columns, shared)
            direction = np.random.default_rng(0).standard_normal(self._raveling.size)
            error = np.abs(matrix @ direction - self.hessp(x, direction))
            if np.all(error <= APART * (np.abs(matrix) @ np.abs(direction))):  # entry by entry
                return matrix
        matrix = self._raveling.ravel_matrix(hessian(self._fun)(self._raveling.unravel(x)))
        return matrix * np.outer(self._raveling.scale, self._raveling.scale)

    def _arrow(
        self, x: np.ndarray, rows: np.ndarray, columns: np.ndarray, shared: np.ndarray
    ) -> np.ndarray:
        """The Hessian if entries in different rows do not meet: an arrow of blocks."""
        matrix = np.zeros((len(rows), len(rows)))
        for place in shared:
            matrix[:, place] = matrix[place] = self.hessp(x, np.eye(1, len(rows), place)[0])
        for column in range(columns.max() + 1):
            product = self.hessp(x, (columns == column).astype(float))
            for place in np.flatnonzero(columns == column):
                block = rows == rows[place]
                matrix[block, place] = product[block]
        return matrix

    def covariance(self, x: np.ndarray, kind: Kind = "observed") -> np.ndarray:
        """The inverse of the Hessian, the observed information: Laplace's approximation of the
        parameters' covariance, if the function is minus a log density, constants of the data aside,
        and ``x`` its minimum. The roots of its diagonal are standard errors, in the order of
        ``names``. A function that is scaled has a covariance that is scaled inversely.

        A dense array, of the parameters themselves, whatever their ``scale``. Costs the products of
        ``hessian``, and an eigendecomposition: O(N³) for N entries. ``kind="gauss-newton"`` needs
        residuals: see ``flat_residuals``.

        It holds if data are many for each parameter, and not at a joint maximum over effects of
        groups and parameters of their distribution. Rows that do not meet, as in ``hessian``, are
        taken for effects: two more products for each entry of a row find how far the maximum moves
        when all rows are integrated out, by Laplace's approximation. UserWarning if that is more
        than half of a standard error of a shared parameter.

        LinAlgError, which names the flattest direction, unless the Hessian is positive definite.
        """
        require_choice(kind, KINDS, "kind=")
        if kind != "observed":
            raise ValueError(
                f"kind='gauss-newton' needs residuals, and {self._raveling.name!r} returns their "
                f"sum: write flat, x, _ = dg.adapters.flat_residuals(residuals, tree) and "
                f"flat.covariance(x), or take kind='observed'"
            )
        covariance, message = self._covariance(x, np.full(len(x), True))
        if message:
            warnings.warn(message, stacklevel=2)
        return covariance

    def _covariance(self, x: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, str | None]:
        """The covariance of the entries that are free, and a warning of effects, or None."""
        matrix, accuracy = self.hessian(x), epsilon(self._raveling.unravel(x))
        names, scale = np.array(self.names)[free], self._raveling.scale[free]
        covariance = inverse(matrix[np.ix_(free, free)], accuracy, [*names], "Hessian")
        message = None
        if free.all():
            message = self._moved_by_effects(x, matrix, covariance, accuracy ** (1 / 3))
        return covariance * np.outer(scale, scale), message

    def _moved_by_effects(
        self, x: np.ndarray, matrix: np.ndarray, covariance: np.ndarray, step: float
    ) -> str | None:
        """A warning if another point is likelier once the rows are integrated out.

        That adds half the logarithms of the determinants of the rows' blocks. Its slope is that of
        the curvature along directions that whiten all blocks at once, by differences.
        """
        rows, columns = self._raveling.rows()
        shared, grouped = np.flatnonzero(rows < 0), np.flatnonzero(rows >= 0)
        apart = rows[grouped, None] != rows[grouped]
        if not len(shared) or not np.any(apart) or np.any(matrix[np.ix_(grouped, grouped)][apart]):
            return None
        places = grouped[np.lexsort((columns[grouped], rows[grouped]))]
        places = places.reshape(rows.max() + 1, -1)
        factors = np.linalg.cholesky(matrix[places[:, :, None], places[:, None, :]])
        slope = np.zeros(len(x))
        for whitening in np.moveaxis(np.linalg.inv(factors), 1, 0):
            direction = np.zeros(len(x))
            direction[places] = whitening
            ahead, behind = [self.hessp(x + d * direction, direction) for d in (step, -step)]
            slope += (ahead - behind) / (4.0 * step)
        moves = -(covariance @ slope)[shared] / np.sqrt(np.diag(covariance)[shared])
        farthest = np.argmax(np.abs(moves))
        if np.abs(moves[farthest]) <= FAR:
            return None
        names = self.names
        return (
            f"{names[shared[farthest]]} is estimated jointly with the effects of {len(places)} "
            f"groups ({', '.join([names[place] for place in places[0][:3]])} and so on). With "
            f"these integrated out, by Laplace's approximation, it moves by "
            f"{moves[farthest]:+.1f} standard errors: the joint maximum gives neither "
            f"estimates nor standard errors of what the groups share. Maximise the integral "
            f"instead, as the page on random effects does, or draw from the density by "
            f"dg.adapters.sample"
        )

    def residuals(self, fun: Callable) -> "FlatResiduals":
        """Another function of the pytree, with any number of values, as one of the same vector: for
        SciPy's constraints.

        ::

            inner = flat.residuals(lambda p: p["total"] - np.sum(p["parts"]))
            flat.fit(constraints={"type": "ineq", "fun": inner, "jac": inner.jacobian})
            flat.fit(constraints=scipy.optimize.NonlinearConstraint(inner, 0, 1, inner.jacobian))
        """
        name = require_differentiable(fun, 0, "residuals")

        def values(tree: Any) -> Any:
            output = fun(tree)  # of plain numbers, without a model, it is plain
            is_plain = all([isinstance(leaf, NUMBERS) for leaf in flatten(output)[0]])
            return JOINED(output) if is_plain else output

        return FlatResiduals(values, name, self._raveling, self._start)

    def fit(
        self, x0: Any = None, *, method: str | None = None, bounds: Any = None, **options: Any
    ) -> Fit:
        """The minimum, by ``scipy.optimize.minimize``, with standard errors, as a table.

        Parameters
        ----------
        x0:
            where it begins: a vector, or a pytree like the first one, which is the default.
        method, bounds, options:
            SciPy's: ``constraints``, ``tol``, ``options`` ... By default BFGS, L-BFGS-B with bounds
            (see ``flat.bounds``) and SLSQP with constraints; methods that take second derivatives
            get them.

        Returns
        -------
        Fit
            SciPy's result, with ``parameters``, ``errors``, ``correlations``, ``warnings``,
            ``to_frame``, ``profile`` and ``sample``. Standard errors are those of ``covariance``,
            so the function is minus a log density.

        UserWarning for all that speaks against the minimum: not converged, at a bound, a Hessian
        that is not positive definite, a joint maximum over effects. Errors of the models and of
        SciPy are raised.
        """
        problem = Minimum(self, self._fun, self._raveling)
        vector = as_vector(x0, self._raveling, self._start)
        return problem.run(vector, method, as_bounds(bounds), **options)

    def bounds(self, lower: Any = None, upper: Any = None) -> Any:
        """SciPy's ``Bounds`` of pytrees, in which a number stands for all entries of a leaf.

        ``None``, for a leaf or for all of them, is no bound.
        """
        scipy = imported("scipy.optimize", "scipy", "bounds are SciPy's")
        low, high = self._raveling.spread(lower, -np.inf), self._raveling.spread(upper, np.inf)
        return scipy.Bounds(low / self._raveling.scale, high / self._raveling.scale)


def inverse(matrix: np.ndarray, accuracy: float, names: list[str], kind: str) -> np.ndarray:
    """The inverse of a Hessian, or of J'J for a Jacobian J, if it is positive definite."""
    if not np.all(np.isfinite(matrix)):
        raise np.linalg.LinAlgError(
            f"the {kind} has entries that are not finite at this point; dg.debug_nans() names "
            f"the model that makes the first one"
        )
    bound = max(matrix.shape) * accuracy
    if kind == "Hessian":
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    else:
        _, roots, rows = np.linalg.svd(matrix, full_matrices=False)
        values, vectors, bound = roots[::-1] ** 2, rows[::-1].T, bound**2
    if not values[0] > bound * abs(values[-1]):
        largest = np.argsort(-np.abs(vectors[:, 0]))[:3]
        direction = ", ".join([f"{vectors[n, 0]:+.2f} {names[n]}" for n in largest])
        raise np.linalg.LinAlgError(
            f"the {kind} has no inverse that is a covariance: its least eigenvalue is "
            f"{values[0]:.3g} (the largest {values[-1]:.3g}), along {direction}; this point is "
            f"no minimum, or the data say nothing of this direction: minimise further, fix "
            f"parameters that stand at a bound, or add a prior"
        )
    return (vectors / values) @ vectors.T


def flat(
    fun: Callable, tree: Any, scale: Any = None
) -> tuple[Flat, np.ndarray, Callable[[np.ndarray], Any]]:
    """A function of a pytree as one of a vector, for optimisers that know of vectors alone.

    ::

        flat, x0, unravel = dg.adapters.flat(loss, {"slope": 0.0, "offsets": np.zeros(9)})
        result = scipy.optimize.minimize(flat, x0, jac=True, hessp=flat.hessp, method="trust-ncg")
        parameters = unravel(result.x)

    Parameters
    ----------
    fun:
        as for ``value_and_grad``, of one argument.
    tree:
        a point: a pytree of float arrays and numbers. Integers, booleans and strings in it are
        constants.
    scale:
        typical sizes of the parameters, for optimisers that take all entries for equally large: the
        entries of the vector are parameters divided by it. A pytree of positive numbers, in which a
        number stands for all entries of a leaf, and ``None`` for one.

    Returns
    -------
    tuple
        The function, which returns value and gradient, and has ``hessp``, ``hessian`` and
        ``covariance`` (dense arrays, from a product with the Hessian for each entry, or for each
        parameter of one item and each shared one), ``names`` and ``bounds``; the point as a vector
        of double precision; and the function that turns a vector into a pytree.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, or the tree has complex numbers, or no float ones.
    ValueError
        if a scale is not positive, or has another structure.

    See Also
    --------
    daskgrad.value_and_grad, daskgrad.hvp, flat_residuals

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> def loss(p):
    ...     return dg.delayed(lambda p: np.sum((p["a"] - 1.0) ** 2) + (p["b"] + 2.0) ** 2)(p)
    >>> flat, x0, unravel = dg.adapters.flat(loss, {"a": np.zeros(2), "b": 0.0})
    >>> minimum = unravel(minimize(flat, x0, jac=True).x)
    >>> minimum["a"].round(4), round(float(minimum["b"]), 4)
    (array([1., 1.]), -2.0)
    """
    name = require_differentiable(fun, 0, "adapters.flat")
    raveling = Raveling(tree, name, scale)
    start = raveling.ravel(tree) / raveling.scale
    return Flat(fun, raveling, start), start, raveling.unravel


# -------------------------------------------------------------------------------------------------
# flat_residuals: a function with many values, of a vector, for SciPy's least squares and roots.


def joined(tree: Any) -> Any:
    """The entries of all leaves, one after another."""
    return np.concatenate([np.ravel(leaf) for leaf in flatten(tree)[0]])


def half_squares(residuals: Any) -> Any:
    return 0.5 * np.sum(residuals**2)


JOINED, HALF_SQUARES = delayed(joined), delayed(half_squares)
NUMBERS = (np.ndarray, np.floating, float)


class FlatResiduals:
    """A function of a vector that returns one, with its derivatives."""

    def __init__(self, fun: Callable, name: str, raveling: Raveling, start: np.ndarray):
        self._raveling, self._start = raveling, start

        def values(tree: Any) -> Node:
            return JOINED(as_output(fun(tree), name))

        values.daskgrad_watched = fun  # type: ignore[attr-defined]
        self._fun = values
        self._value = Objective(RecordedValue, values, name, [0])
        self._jacobian = jacobian(values)
        self._sparse_jacobian = jacobian(values, sparse=True)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The values."""
        tree = self._raveling.unravel(x)
        return self._value.call((tree,), lambda: compute_value(self._fun(tree)))

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """The matrix of their derivatives, a row a value."""
        rows = self._raveling.ravel_rows(self._jacobian(self._raveling.unravel(x)))
        return rows * self._raveling.scale

    def sparse_jacobian(self, x: np.ndarray) -> Any:
        """The matrix as a sparse array of SciPy's, with the entries that the graph has."""
        matrix = self._raveling.ravel_sparse_rows(self._sparse_jacobian(self._raveling.unravel(x)))
        return matrix.multiply(self._raveling.scale).tocsr()

    def operator(self, x: np.ndarray) -> Any:
        """The matrix as SciPy's ``LinearOperator``, which pushes and pulls vectors, one at a time.

        It runs the models forward, and holds the residuals of their pullbacks while it is used.
        """
        linalg = imported("scipy.sparse.linalg", "scipy", "a LinearOperator is SciPy's")
        point = self._raveling.unravel(x)
        value, pullback = vjp(self._fun, point)

        def push(vector: np.ndarray) -> np.ndarray:
            direction = self._raveling.direction(np.ravel(vector))
            return jvp(self._fun, (point,), (direction,))[1]

        def pull(vector: np.ndarray) -> np.ndarray:
            (pulled,) = pullback(np.ravel(vector).astype(value.dtype))
            return self._raveling.scale * self._raveling.ravel(pulled)

        shape = (value.size, self._raveling.size)
        return linalg.LinearOperator(shape, matvec=push, rmatvec=pull, dtype=float)

    @property
    def names(self) -> list[str]:
        """The name of each entry of the vector, as of ``flat``."""
        return self._raveling.names

    def covariance(self, x: np.ndarray, kind: Kind = "gauss-newton") -> np.ndarray:
        """The parameters' covariance at the least sum of squares, where errors are independent and
        of one variance, which the residuals tell: s² = r'r / (n - p), of n residuals and p entries.
        The roots of its diagonal are standard errors, in the order of ``names``.

        "gauss-newton": s² (J'J)⁻¹, the expected information, with J the Jacobian: as ``curve_fit``
        with ``absolute_sigma=False``, and as programs for nonlinear regression. "observed": s² H⁻¹,
        with H = J'J + Σ r ∇²r, the Hessian of half the sum of squares, which costs a product for
        each entry. They agree where residuals are small, or bend little, and may be 20 % apart.

        Residuals are weighted by dividing each by its error, or by what is proportional to it: a
        common factor cancels. If errors are known, and not to be estimated, divide the covariance
        by s². s² takes all rows for data: priors among them belong into ``flat``.

        A dense array, whatever sizes the parameters have. ValueError unless there are more
        residuals than entries; LinAlgError, which names the flattest direction in units in which
        the Jacobian's columns have length one, unless the matrix is positive definite.
        """
        require_choice(kind, KINDS, "kind=")
        return self._covariance(x, np.full(len(x), True), kind)

    def _covariance(
        self, x: np.ndarray, free: np.ndarray, kind: Kind = "gauss-newton"
    ) -> np.ndarray:
        """The covariance of the entries that are free."""
        residuals, matrix = np.asarray(self(x), float), self.jacobian(x)[:, free]
        names = [*np.array(self.names)[free]]
        count, entries = matrix.shape
        if count <= entries:
            raise ValueError(
                f"{self._raveling.name!r} has {count} residuals for {entries} parameters, which do "
                f"not tell their variance: give more residuals than parameters"
            )
        lengths = np.linalg.norm(matrix, axis=0)
        units = 1.0 / np.where(lengths > 0.0, lengths, 1.0)
        accuracy = epsilon(self._raveling.unravel(x))
        if kind == "gauss-newton":
            covariance = inverse(matrix * units, accuracy, names, "Jacobian")
        else:
            squares = Flat(lambda tree: HALF_SQUARES(self._fun(tree)), self._raveling, x)
            matrix = squares.hessian(x)[np.ix_(free, free)] * np.outer(units, units)
            covariance = inverse(matrix, accuracy, names, "Hessian")
        return covariance * np.outer(units, units) * (residuals @ residuals / (count - entries))

    def fit(
        self, x0: Any = None, *, method: str | None = None, bounds: Any = None, **options: Any
    ) -> Fit:
        """The least sum of squares, by ``scipy.optimize.least_squares``, with standard errors, as a
        table.

        ``x0``: a vector, or a pytree like the first one, which is the default; ``method`` ("trf"),
        ``bounds`` and ``options`` (``loss``, ``x_scale`` ...) are SciPy's. Returns and warns as
        ``flat(...)[0].fit``; standard errors are those of ``covariance``, for independent errors of
        one variance.
        """
        problem = LeastSquares(self, self._raveling)
        vector = as_vector(x0, self._raveling, self._start)
        return problem.run(vector, method, as_bounds(bounds), **options)


def flat_residuals(
    fun: Callable, tree: Any
) -> tuple[FlatResiduals, np.ndarray, Callable[[np.ndarray], Any]]:
    """A function of a pytree with many values, as one between vectors.

    ::

        residuals, x0, unravel = dg.adapters.flat_residuals(fun, {"rate": 1.0, "sizes": np.ones(3)})
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.jacobian)
        result = scipy.optimize.root(residuals, x0, jac=residuals.jacobian)
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.sparse_jacobian)
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.operator)  # large ones

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its argument and returns a node or a pytree of nodes.
        Their values are real arrays and numbers, which are joined in C order.
    tree:
        a point, as for ``flat``.

    Returns
    -------
    tuple
        The function of vectors, with the methods ``jacobian``, ``sparse_jacobian`` (for many
        residuals that depend on few parameters each: SciPy then solves by ``tr_solver="lsmr"``;
        ``method="lm"`` takes dense matrices alone), ``operator`` and ``covariance``, and ``names``;
        the point as a vector; and the function that turns a vector into a pytree. Raises as
        ``flat``.

    See Also
    --------
    flat, daskgrad.jacobian

    Examples
    --------
    >>> from scipy.optimize import least_squares
    >>> residuals = dg.delayed(lambda p: np.hstack([p["a"] - 1.0, 3.0 * (p["b"] - p["a"])]))
    >>> flat, x0, unravel = dg.adapters.flat_residuals(residuals, {"a": 0.0, "b": 0.0})
    >>> least_squares(flat, x0, jac=flat.jacobian).x.round(6)
    array([1., 1.])
    """
    name = require_differentiable(fun, 0, "adapters.flat_residuals")
    raveling = Raveling(tree, name)
    start = raveling.ravel(tree)
    return FlatResiduals(fun, name, raveling, start), start, raveling.unravel
