"""A solver with rules of its own, in both modes."""

import autograd.numpy as anp
import numpy as np

import daskgrad as dg

MATRIX = 4.0 * np.eye(3) + np.arange(9.0).reshape(3, 3) / 9.0
RHS = np.array([1.0, -2.0, 0.5])


@dg.custom_vjp
def solve(matrix, rhs):
    """A solver that autograd cannot trace, as NumPy's own is."""
    return np.linalg.solve(matrix, rhs)


def solve_forward(matrix, rhs):
    x = solve(matrix, rhs)
    return x, (matrix, x)


def solve_backward(residuals, cotangent):
    matrix, x = residuals
    w = solve(matrix.T, cotangent)
    return -anp.outer(w, x), w


def solve_jvp(primals, tangents):
    x = solve(*primals)
    return x, solve(primals[0], tangents[1] - anp.dot(tangents[0], x))


solve.defvjp(solve_forward, solve_backward)
solve.defjvp(solve_jvp)
