"""Hints: advice for errors of models that are not written for PyTorch."""

SIGNS = (  # in messages of PyTorch and NumPy about each other's arrays
    "Can't call numpy() on Tensor",
    "'numpy.ndarray' and 'Tensor'",
    "'Tensor' and 'numpy.ndarray'",
    "not Tensor",
    "not numpy.ndarray",
    "got numpy.ndarray",
    "got (numpy.ndarray",
)

HINT = (
    "all array arguments of a model of backend 'torch' are tensors: use torch's functions instead "
    "of NumPy's, and torch.as_tensor for the model's own arrays; .detach() and .numpy() would lose "
    "the derivative"
)


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error from mixing tensors and NumPy arrays."""
    return HINT if any(sign in str(error) for sign in SIGNS) else None
