"""Products of vectors and arrays."""

from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import equivalent, keywords, plain


def outer_needed(a: Any, b: Any) -> bool:
    return np.ndim(plain(a)) > 1 or np.ndim(plain(b)) > 1


@equivalent(anp.outer, needed=outer_needed, arrays=2)
def outer(a: Any, b: Any) -> Any:
    return anp.reshape(a, (-1, 1)) * anp.reshape(b, (1, -1))


def cross_needed(a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    return np.shape(plain(a)) != np.shape(plain(b))


@equivalent(anp.cross, needed=cross_needed, arrays=2)
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x = anp.moveaxis(a, axisa, 0)
    y = anp.moveaxis(b, axisb, 0)
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return anp.moveaxis(anp.array(parts), 0, axisc)


# ------------------------------------------------------------------------------ einsum


def einsum_needed(*operands: Any, **kwargs: Any) -> bool:
    """Whether the subscripts are lists, or one operand has an index twice."""
    if not isinstance(operands[0], str):
        return True
    terms = operands[0].replace(" ", "").split("->")[0].replace("...", "").split(",")
    return any(len(set(term)) < len(term) for term in terms)


@equivalent(anp.einsum, needed=einsum_needed, arrays=10**9)
def einsum(*operands: Any, **kwargs: Any) -> Any:
    """With subscripts as letters, and diagonals taken beforehand."""
    terms, result, arrays = lettered(operands)
    pairs = [diagonal(term, array) for term, array in zip(terms, arrays, strict=True)]
    names = ",".join([term for term, _ in pairs])
    return anp.einsum(f"{names}->{result}", *[array for _, array in pairs], **kwargs)


def lettered(operands: tuple) -> tuple[list[str], str, list[Any]]:
    """Subscripts as letters, those of ellipses among them, as NumPy reads them; and the arrays."""
    terms, result, _ = anp.parse_einsum_input(*map(plain, operands))
    if isinstance(operands[0], str):
        arrays = list(operands[1:])
    else:
        arrays = list(operands[: 2 * (len(operands) // 2) : 2])
    return terms.split(","), result, arrays


def diagonal(term: str, array: Any) -> tuple[str, Any]:
    """An operand without the second place of an index that it has twice."""
    for letter in set(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            array = anp.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, array


keywords("axisa axisb axisc axis", anp.cross)
keywords("axes", anp.tensordot)
keywords("optimize", anp.einsum)
