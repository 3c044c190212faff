"""Hints: advice for errors of models that are not written for autograd."""

HINT = (
    "while it is differentiated, a model sees autograd's boxes instead of arrays. Functions of "
    "numpy and scipy.special take them; use these instead of math, and daskgrad.scipy instead of "
    "the rest of scipy (for example daskgrad.scipy.linalg; give other functions a rule with "
    "dg.custom_vjp). Make new arrays (np.concatenate, np.where) instead of assigning into one; "
    "inside a model, take derivatives of plain functions with autograd.grad, not dg.grad"
)


BOX_SIGNS = (  # in messages of plain NumPy and SciPy about a box, or an array of boxes
    "ArrayBox",
    "array element with a sequence",
    "dtype('O')",
    "dtype object",
    "object arrays",
    "proper array of floats",
    "holds references",
    "found object",
    "not supported for the input types",
    "unsupported data types in input",
    "Can't differentiate w.r.t. type",
)


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error of plain NumPy on a box; boxes exist only while tracing."""
    if stage == "forward" and any(sign in str(error) for sign in BOX_SIGNS):
        return HINT
    return None
