"""Errors that several rooms raise."""


class NondeterministicModelError(RuntimeError):
    """A model is not deterministic: run again on the same arguments, it returned another value.

    Examples
    --------
    >>> draws = iter(range(10))
    >>> def model(x):
    ...     return np.sum(x) * next(draws)
    >>> with dask.config.set(scheduler="sync"):
    ...     dg.grad(dg.delayed(model, keep="recompute"))(np.ones(2))
    Traceback (most recent call last):
        ...
    daskgrad.values.errors.NondeterministicModelError: ...
    """
