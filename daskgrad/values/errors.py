"""Errors that several rooms raise."""


class NondeterministicModelError(RuntimeError):
    """A model is not deterministic: run again on the same arguments, it returned another value."""
