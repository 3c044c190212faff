"""Hints: what to do where a model is not written for autograd."""

HINT = (
    "while it is differentiated, a model sees autograd's boxes in the place of arrays: "
    "use autograd.numpy in the place of numpy and math, and autograd.scipy in that of scipy "
    "(autograd.scipy.special.gammaln; what it lacks gets a rule with dg.custom_vjp), make new "
    "arrays (np.concatenate, np.where) in the place of assigning into one, and see autograd's "
    "tutorial for what it covers; "
    "a derivative inside a model is autograd's own, of a plain function: autograd.grad, not dg.grad"
)


BOX_SIGNS = (  # what plain NumPy and SciPy say when they meet a box, or an array of boxes
    "ArrayBox",
    "array element with a sequence",
    "dtype('O')",
    "dtype object",
    "object arrays",
    "proper array of floats",
    "holds references",
    "found object",
    "not supported for the input types",
    "Can't differentiate w.r.t. type",
)


def hint(error: Exception, stage: str) -> str | None:
    """What an error that plain NumPy raised over a box means; boxes are there while tracing."""
    if stage == "forward" and any(sign in str(error) for sign in BOX_SIGNS):
        return HINT
    return None
