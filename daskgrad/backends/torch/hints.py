"""Hints: what to do where a model is not written for PyTorch."""

SIGNS = (  # what PyTorch and NumPy say when they meet each other's arrays
    "Can't call numpy() on Tensor",
    "'numpy.ndarray' and 'Tensor'",
    "'Tensor' and 'numpy.ndarray'",
    "not Tensor",
    "not numpy.ndarray",
    "got numpy.ndarray",
    "got (numpy.ndarray",
)

HINT = (
    "all arrays that a model of backend 'torch' is called with are tensors: use torch's functions "
    "in the place of NumPy's, and torch.as_tensor for arrays of the model's own; .detach() and "
    ".numpy() would cut the derivative off"
)


def hint(error: Exception, stage: str) -> str | None:
    """What an error means that comes from mixing tensors and NumPy arrays."""
    return HINT if any(sign in str(error) for sign in SIGNS) else None
