"""Estimators that minimise a sum over rows, in scikit-learn's own tools."""

import types

import numpy as np
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.optional

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 4))
Y = GENERATOR.poisson(np.exp(X @ [0.5, -0.3, 0.0, 0.2] + 0.1)).astype(float)


@pytest.fixture(scope="module")
def kinds():
    """Estimators of ours; scikit-learn is imported here, for it takes long."""
    base = pytest.importorskip("sklearn.base")
    from sklearn.utils.validation import check_is_fitted

    class Linear(base.RegressorMixin, dg.adapters.SumEstimator):
        def __init__(self, alpha=1.0, max_iter=500):
            self.alpha, self.max_iter = alpha, max_iter

        def start(self, X, y):
            return {"w": np.zeros(X.shape[1]), "b": 0.0}

        def loss(self, X, y, p):
            return 0.5 * np.sum((X @ p["w"] + p["b"] - y) ** 2)

        def penalty(self, p):
            return 0.5 * self.alpha * np.sum(p["w"] ** 2)

        def predict(self, X):
            check_is_fitted(self)
            return X @ self.parameters_["w"] + self.parameters_["b"]

    class Poisson(Linear):
        def loss(self, X, y, p):
            eta = X @ p["w"] + p["b"]
            return np.sum(np.exp(eta) - y * eta)

        def predict(self, X):
            return np.exp(super().predict(X))

    class Free(Linear):
        penalty = None

    return types.SimpleNamespace(Linear=Linear, Poisson=Poisson, Free=Free)


def test_it_finds_what_scikit_learn_finds(kinds):
    from sklearn.linear_model import PoissonRegressor, Ridge

    ours, theirs = kinds.Linear(alpha=3.0).fit(X, Y), Ridge(alpha=3.0).fit(X, Y)
    assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)
    assert_allclose(ours.score(X, Y), theirs.score(X, Y), atol=1e-6)
    ours, theirs = (
        kinds.Poisson(alpha=3.0).fit(X, Y),
        PoissonRegressor(alpha=3.0 / len(X), tol=1e-8),
    )
    assert_allclose(ours.predict(X), theirs.fit(X, Y).predict(X), rtol=1e-3)
    free = kinds.Free().fit(X, Y)
    assert_allclose(free.predict(X), Ridge(alpha=0.0).fit(X, Y).predict(X), atol=1e-4)


def test_it_works_in_pipelines_and_searches(kinds):
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), kinds.Poisson())
    search = GridSearchCV(model, {"poisson__alpha": [0.1, 1000.0]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"poisson__alpha": 0.1}
    assert clone(search.best_estimator_[-1]).get_params() == {"alpha": 0.1, "max_iter": 500}


def test_what_it_learns_is_there_after_fitting(kinds, client):
    from sklearn.exceptions import NotFittedError

    model = kinds.Linear()
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, Y)
    assert model.n_features_in_ == 4
    assert model.n_iter_ > 0
    assert model.loss_ > 0.0


def test_bad_input_and_too_few_steps_are_told(kinds):
    from sklearn.exceptions import ConvergenceWarning

    with pytest.raises(ValueError, match="Input X contains NaN"):
        kinds.Linear().fit(np.full_like(X, np.nan), Y)
    with pytest.warns(ConvergenceWarning, match="Linear did not converge in 1 steps"):
        kinds.Linear(max_iter=1).fit(X, Y)
    with pytest.raises(NotImplementedError, match=r"SumEstimator must define start\(X, y\)"):
        dg.adapters.SumEstimator().fit(X, Y)
