"""sample: Hamiltonian Monte Carlo (NUTS) of a density that is differentiated here, by nutpie."""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np

from daskgrad.adapters import in_this_context
from daskgrad.adapters.flat_vectors import Flat
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.autodiff.values.vectors import Raveling
from daskgrad.derivatives.inputs import require_differentiable

SECONDS = 0.1  # between two looks at whether the sampler is done


def sample(
    log_density: Callable,
    start: Any,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    **settings: Any,
) -> Any:
    """Draws from a density, by the No-U-Turn sampler of nutpie; chains run in parallel threads.

    ::

        def log_density(p):
            return dg.map_sum(log_likelihood, shards, p["mu"]) + log_prior(p["mu"])

        draws = dg.adapters.sample(log_density, {"mu": 0.0, "tau": np.zeros(8)})
        arviz.summary(draws)

    Parameters
    ----------
    log_density:
        a function of one pytree, as for ``value_and_grad``: the logarithm of the density, up to a
        constant, for all real numbers. Write a positive parameter as an exponential, and add the
        logarithm of its derivative.
    start:
        the pytree near which chains start: at random within 1 in each parameter, or nearer if the
        density is not finite there. Its float leaves are drawn.
    draws, tune, chains, seed:
        the numbers of draws to keep, of draws before these to adapt the sampler, and of chains; and
        the seed of their random numbers.
    coords, dims:
        ArviZ's labels of dimensions, and dimensions of parameters, by name.
    settings:
        further arguments of ``nutpie.sample``: ``cores``, ``progress_bar``, ``target_accept`` ...

    Returns
    -------
    InferenceData
        ArviZ's ``InferenceData``. A parameter has the name of its path in the pytree: ``"mu"``,
        ``"school.mean"``.

        Chains call the density at the same time, and use the client that is active here. An error
        of a model ends the sampling, and is raised; values that are not finite count as a
        divergence. An interrupt ends it, and returns the draws so far.

    Raises
    ------
    ValueError
        if the density or its gradient is not finite at the start.
    TypeError
        if nutpie does not know one of the settings.
    """
    name = require_differentiable(log_density, 0, "adapters.sample")
    nutpie = imported("nutpie", "nutpie", "the sampler is nutpie's")
    imported("arviz", "nutpie", "the draws are ArviZ's")
    raveling = Raveling(start, name)
    density = Density(log_density, raveling)
    density.require_finite(start, name)
    model = compiled_model(density, raveling, start, coords, dims)
    options = {"draws": draws, "tune": tune, "chains": chains, "seed": seed, **settings}
    try:
        sampler = nutpie.sample(model, blocking=False, **options)
    except AttributeError as error:
        unknown = [setting for setting in settings if repr(setting) in str(error)]
        if not unknown:
            raise
        names = get_close_matches(unknown[0], inspect.signature(nutpie.sample).parameters)
        raise TypeError(
            f"adapters.sample: nutpie has no setting {unknown[0]!r}"
            + (f"; is {' or '.join(map(repr, names))} meant?" if names else "")
        ) from error
    return drawn(sampler, density)


def drawn(sampler: Any, density: "Density") -> Any:
    """The draws of a sampler that is done, or interrupted."""
    try:
        while not density.failed.is_set():
            try:
                return sampler.wait(timeout=SECONDS)
            except TimeoutError:
                continue
            except RuntimeError:  # it found no point to start from
                if not density.failed.is_set():
                    raise
    except KeyboardInterrupt:
        return sampler.abort()
    sampler.cancel()
    raise density.errors[0]


class Density:
    """Value and gradient at a vector. An error would make nutpie end the process's threads: so it
    gets a divergence, and the waiting thread raises the first of the ``errors``."""

    def __init__(self, log_density: Callable, raveling: Raveling):
        self.errors: list[Exception] = []
        self.failed = threading.Event()
        self.raveling = raveling
        self._evaluate = in_this_context(Flat(log_density, raveling, np.zeros(raveling.size)))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if self.failed.is_set():
            raise RecoverableError
        try:
            return self._evaluate(x)
        except Exception as error:
            self.errors.append(error)
            self.failed.set()
            raise RecoverableError from error

    def require_finite(self, start: Any, name: str) -> None:
        """Raises at a point where no chain can start; nutpie may end the process there."""
        value, gradient = self._evaluate(self.raveling.ravel(start))
        leaves = self.raveling.by_name(self.raveling.unravel(gradient))
        names = [repr(path) for path, leaf in leaves.items() if not np.all(np.isfinite(leaf))]
        if names or not np.isfinite(value):
            of = f", and its gradient is not finite with respect to {', '.join(names)}"
            raise ValueError(
                f"adapters.sample: {name!r} is {value} at the start{of if names else ''}; chains "
                f"need a start where both are finite. dg.debug_nans() names the model"
            )

    def point_near(self, start: np.ndarray, seed: Any) -> np.ndarray:
        """A random point where a chain starts; steps are halved until the density is finite."""
        step = np.random.default_rng(seed).uniform(-NEAR, NEAR, start.shape)
        for halvings in range(HALVINGS):
            point = start + step * 0.5**halvings
            try:
                value, gradient = self(point)
            except RecoverableError:  # the waiting thread raises the error
                break
            if np.isfinite(value) and np.all(np.isfinite(gradient)):
                return point
        return start


NEAR = 1.0  # from the start, in each parameter
HALVINGS = 30


class RecoverableError(Exception):
    """An error that nutpie counts as a divergence."""

    is_recoverable = True


def compiled_model(density: Density, raveling: Raveling, start: Any, coords: Any, dims: Any) -> Any:
    """The density and its parameters, as nutpie takes them."""
    leaves = raveling.by_name(start)

    def expand_of_chain(*_: Any) -> Callable:
        return lambda x: raveling.by_name(raveling.unravel(x))

    return imported("nutpie.compiled_pyfunc", "nutpie", "the sampler is nutpie's").from_pyfunc(
        raveling.size,
        lambda: density,
        expand_of_chain,
        [np.dtype(float)] * len(leaves),
        list(map(np.shape, leaves.values())),
        list(leaves),
        coords=coords,
        dims=dims,
        make_initial_point_fn=partial(density.point_near, raveling.ravel(start)),
    )
