"""Handlers: what those of a worker are called, beside the one that evaluates sums."""


def abandoning(name: str) -> str:
    """The name of the handler that abandons calls of the handler of this name."""
    return name + "-abandon"


def releasing(name: str) -> str:
    """The name of the handler that releases replicas."""
    return name + "-release"


def attaching(name: str) -> str:
    """The name of the handler for attached arrays."""
    return name + "-attached"
