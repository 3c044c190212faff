"""SumEstimator: scikit-learn's interface of models that are fitted to a sum over rows."""

import warnings
from typing import Any

import numpy as np

from daskgrad.adapters.flat_vectors import flat
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node
from daskgrad.sums.map_sum import reduce_sum
from daskgrad.sums.zipping import zip as zip_items

BASE = imported("sklearn.base", "sklearn", "estimators are scikit-learn's").BaseEstimator
VALIDATION = imported("sklearn.utils.validation", "sklearn", "estimators are scikit-learn's")
EXCEPTIONS = imported("sklearn.exceptions", "sklearn", "estimators are scikit-learn's")
OPTIMIZE = imported("scipy.optimize", "sklearn", "the minimiser is SciPy's")


class SumEstimator(BASE):  # type: ignore[misc,valid-type]
    """A base of estimators whose parameters minimise a sum over rows, by L-BFGS.

    ::

        class Poisson(RegressorMixin, dg.adapters.SumEstimator):
            def __init__(self, alpha=1.0, max_iter=200):
                self.alpha, self.max_iter = alpha, max_iter

            def start(self, X, y):
                return {"w": np.zeros(X.shape[1]), "b": 0.0}

            def loss(self, X, y, p):
                eta = X @ p["w"] + p["b"]
                return np.sum(np.exp(eta) - y * eta)

            def penalty(self, p):
                return 0.5 * self.alpha * np.sum(p["w"] ** 2)

            def predict(self, X):
                return np.exp(X @ self.parameters_["w"] + self.parameters_["b"])

    ``start`` returns a pytree of parameters. ``loss`` is a model of a block of rows, their targets
    and the parameters; blocks run in parallel tasks. ``penalty``, if there is one, is a model of
    the parameters. ``max_iter``, if there is one, limits the iterations. ``score`` comes from
    scikit-learn's mixins.

    ``fit`` sets ``parameters_``, ``n_features_in_``, ``n_iter_``, and ``loss_``, the minimum.
    """

    penalty: Any = None

    def start(self, X: np.ndarray, y: np.ndarray) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define start(X, y)")

    def loss(self, X: np.ndarray, y: np.ndarray, parameters: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define loss(X, y, parameters)")

    def fit(self, X: Any, y: Any) -> "SumEstimator":
        """Minimises the loss of all rows; warns as scikit-learn does where it does not converge."""
        X, y = VALIDATION.validate_data(self, X, y, dtype=np.float64)

        def block(rows: Any, parameters: Any) -> Any:
            features, targets = rows
            return self.loss(features, targets, parameters)

        def total(parameters: Any) -> Node:
            data = reduce_sum(block, zip_items(X, y), parameters)
            return data if self.penalty is None else data + delayed(self.penalty)(parameters)

        fun, x0, unravel = flat(total, self.start(X, y))
        options = {"maxiter": getattr(self, "max_iter", 15_000)}
        minimum = OPTIMIZE.minimize(fun, x0, jac=True, method="L-BFGS-B", options=options)
        if not minimum.success:
            warnings.warn(
                f"{type(self).__name__} did not converge in {minimum.nit} steps: {minimum.message}",
                EXCEPTIONS.ConvergenceWarning,
                stacklevel=2,
            )
        self.parameters_, self.loss_ = unravel(minimum.x), minimum.fun
        self.n_iter_ = minimum.nit
        return self
