"""Operations of random programs: each makes an array of those so far, and fits any shapes.

An operation is a function of ``(x, y, data, choose)``: two values so far, the arrays of the data,
and ``choose(n)``, a number below ``n`` that is the same whenever the program runs.
"""

import autograd.numpy as anp
import numpy as np

from daskgrad.scipy.special import logsumexp

N, M = 10, 9
TABLE = np.asfortranarray(np.cos(np.arange(N * M)).reshape(N, M))
MASK = np.arange(N) % 3 == 1
INDICES = [np.array([0, 2, 2, 1]), [1, 1], slice(1, None), slice(None, None, -1), Ellipsis, 0]
INDICES += [None, (slice(None, None, 2), None), np.array([[0, -1], [1, 0]]), slice(0, 2), -1]

UNARY = [np.sin, np.cos, np.tanh, np.exp, np.abs, np.square, anp.sin, np.negative, np.arctan]
UNARY += [lambda x: np.sqrt(1.0 + x * x), lambda x: x**3, lambda x: 1.5 - x, lambda x: x / 3.0]
UNARY += [lambda x: np.log1p(np.exp(-x)), lambda x: np.clip(x, -0.5, 0.5), lambda x: x * x * x]
UNARY += [lambda x: np.where(x > 0.0, x, 0.1 * x), lambda x: x**2, lambda x: 2.0 / (x * x + 1)]
UNARY += [lambda x: np.cumsum(x), lambda x: np.sort(np.ravel(x)), np.log, np.reciprocal, np.sqrt]
UNARY += [lambda x: x**-1.5, lambda x: -(x * -1.0), np.expm1, np.sinh, lambda x: x % 0.7]
UNARY += [lambda x: np.where(x > 0.1, -x, 1.0), lambda x: np.nan_to_num(x), np.fabs, np.floor]
BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.arctan2, np.hypot]
BINARY += [lambda x, y: x / (2.0 + y * y), lambda x, y: x * y + y, np.logaddexp, np.fmax]
BINARY += [lambda x, y: np.where(x < y, x, y), lambda x, y: x - y * x, lambda x, y: np.divide(x, y)]
BINARY += [lambda x, y: np.abs(x) ** y, lambda x, y: np.where(x > y, y, 1.0) * x]
REDUCTIONS = [np.sum, np.mean, np.max, np.min, np.var, np.std, np.prod, logsumexp, anp.sum]
ALONG = [np.cumsum, np.sort, np.flip, lambda x, axis: np.roll(x, 2, axis)]
ALONG += [lambda x, axis: np.diff(x, axis=axis), lambda x, axis: np.repeat(x, 2, axis)]
ALONG += [lambda x, axis: np.concatenate([x, -x, x], axis), lambda x, axis: np.stack([x, x], axis)]
ALONG += [lambda x, axis: np.take(x, [0, 0, -1], axis), lambda x, axis: np.moveaxis(x, axis, 0)]
ALONG += [lambda x, axis: np.expand_dims(x, axis), lambda x, axis: np.swapaxes(x, 0, axis)]
ALONG += [lambda x, axis: np.take_along_axis(x, np.argsort(x, axis), axis)]
ALONG += [lambda x, axis: x - np.max(x, axis, keepdims=True)]
SHAPES = [lambda x: np.reshape(x, -1), lambda x: x.T, np.ravel, np.atleast_2d, np.squeeze]
SHAPES += [lambda x: np.tile(x, 2), lambda x: np.broadcast_to(x[None], (2, *np.shape(x)))]
SHAPES += [np.transpose]
SHAPES += [lambda x: np.pad(np.ravel(x), 2), lambda x: np.reshape(x, np.shape(x)[::-1]), np.copy]
MATRICES = [np.diag, np.tril, np.triu, np.trace, lambda x: x @ x.T, lambda x: np.dot(x.T, x)]
MATRICES += [np.linalg.norm, lambda x: np.linalg.solve(square_of(x), x), lambda x: x[:, ::2]]
MATRICES += [lambda x: np.linalg.inv(square_of(x)), lambda x: np.linalg.slogdet(square_of(x))[1]]
MATRICES += [lambda x: np.linalg.cholesky(square_of(x)), lambda x: x[[0, 0], [0, -1]], np.flipud]
MATRICES += [lambda x: np.linalg.eigh(square_of(x))[0], lambda x: np.linalg.det(square_of(x))]
EINSUMS = ["ij->ji", "ij->", "ij,ij->i", "ij,kj->ik", "ij,j->i", "i,ij->j", "ii->i", "ij,ij->"]
EINSUMS += ["ij,kj,ij->ki", "ij,ik,ij->jk", "ij,kj", "ij,j,ij->i"]
OTHER_KINDS = [lambda x: np.abs(np.fft.fft(np.ravel(x))), lambda x: np.real(np.exp(1j * x))]
OTHER_KINDS += [lambda x: np.imag(x * (1.0 + 2.0j)), lambda x: np.abs(x + 1j) ** 2]
OTHER_KINDS += [lambda x: np.real(np.conj(x * 1j) * (x + 1j)), lambda x: np.angle(x + 0.5j)]
OTHER_KINDS += [lambda x: np.real(np.fft.ifft(np.fft.fft(x) * (x + 1j))), lambda x: 2 * np.sin(x)]
OTHER_KINDS += [lambda x: x.astype(np.float32) * 2, lambda x: np.sum(x.astype(np.float32) ** 2)]
OTHER_KINDS += [lambda x: np.float32(0.5) * x, lambda x: x * np.arange(3)[1], lambda x: x + True]


def square_of(x):
    """A well-conditioned square matrix with as many rows."""
    return np.dot(x, x.T) + (2.0 + np.shape(x)[0]) * np.eye(np.shape(x)[0])


def unary(x, y, data, choose):
    return UNARY[choose(len(UNARY))](x)


def binary(x, y, data, choose):
    fun = BINARY[choose(len(BINARY))]
    return fun(x, y) if are_compatible(np.shape(x), np.shape(y)) else fun(x, np.sum(y))


def are_compatible(first, second):
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return True


def reduction(x, y, data, choose):
    ndim = np.ndim(x)
    axis = [None, *range(-ndim, ndim), *([(0, -1)] if ndim > 1 else [])][choose(2 * ndim + 1)]
    return REDUCTIONS[choose(len(REDUCTIONS))](x, axis=axis, keepdims=bool(choose(2)))


def along(x, y, data, choose):
    if not np.ndim(x):
        return x * 1.0
    return ALONG[choose(len(ALONG))](x, axis=choose(np.ndim(x)))


def index(x, y, data, choose):
    if not np.ndim(x) or np.shape(x)[0] < 3:
        return x * 2.0
    return x[INDICES[choose(len(INDICES))]]


def index_of_data(x, y, data, choose):
    """Fancy indices, masks and places that come from the data."""
    if np.shape(x)[:1] != (N,):
        return x * data[0][choose(N)]
    places = np.argsort(data[choose(2)])
    indices = [places, places[:3], data[0] > 0.0, np.argmax(data[1]), MASK, (places, ..., None)]
    return x[indices[choose(len(indices))]]


def shape(x, y, data, choose):
    return SHAPES[choose(len(SHAPES))](x)


def matrix(x, y, data, choose):
    if np.ndim(x) != 2 or min(np.shape(x)) < 2:
        return np.outer(x, data[1]) if np.size(x) < 30 else x * 0.5
    return MATRICES[choose(len(MATRICES))](x)


def product(x, y, data, choose):
    if np.shape(x)[:1] == (N,) and choose(2):
        return [
            lambda: np.dot(TABLE.T, x),
            lambda: TABLE.T @ x,
            lambda: np.tensordot(TABLE, x, (0, 0)),
        ][choose(3)]()
    subscripts = EINSUMS[choose(len(EINSUMS))]
    operands = [x, y, x][: subscripts.count(",") + 1]
    return np.einsum(subscripts, *operands)


def in_fortrans_order(x, y, data, choose):
    """Sums have other bits where arrays have another order in memory."""
    table = TABLE * x if are_compatible(np.shape(x), (N, M)) else TABLE * np.mean(x)
    return [np.sin(table), table.T * table.T, np.sum(np.cos(table), axis=0) + table][choose(3)]


def scatter(x, y, data, choose):
    """Parts of values are put together again."""
    flat, other = np.ravel(x), np.ravel(y)
    if choose(2):
        return np.concatenate([flat, other, data[0]])[:N] * data[choose(2)]
    first, last = flat[0], other[-1]
    if choose(2):
        return anp.array([first * last, 2.0, last]) if choose(2) else anp.array([[first], [last]])
    return np.stack([np.sum(x), np.sum(y), np.mean(x)])


def other_kind(x, y, data, choose):
    return OTHER_KINDS[choose(len(OTHER_KINDS))](x)


def guard(x, y, data, choose):
    if choose(2):
        return x if np.sum(x) > 0.3 else 2.0 * x
    if choose(2):
        return np.sin(x) if data[0][choose(N)] < data[1][0] else x * data[1][0]
    return max(np.sum(x), np.sum(y), 0.1) * x


OPERATIONS = [unary] * 4 + [binary] * 4 + [reduction] * 2 + [index] * 2 + [along] * 2
OPERATIONS += [in_fortrans_order] * 3 + [index_of_data, shape, shape, matrix, product, scatter]
OPERATIONS += [other_kind, guard]
