"""Functions of matrices; a symmetric matrix is made within the program that needs one."""

import math

import autograd.numpy as np
import autograd.scipy.linalg

import daskgrad as dg
from problems.problem import drawn, scalar, vector

SQUARE = np.eye(3) + 0.3 * drawn(80, 3, 3)


@dg.delayed
def symmetric(matrix):
    return 0.5 * (matrix + matrix.T)


# ------------------------------------------------------------------ log determinant, solve, inverse


@dg.delayed
def log_size(matrix):
    sign, logdet = np.linalg.slogdet(matrix)
    return sign * logdet**2 + np.linalg.det(matrix)


def log_determinant(matrix):
    return log_size(matrix)


@dg.delayed
def solution(matrix, right):
    return np.linalg.solve(matrix, right)


def linear_solve(matrix, right):
    return solution(matrix, solution(matrix, right))


@dg.delayed
def inverse_of(matrix):
    return np.linalg.inv(matrix)


def matrix_inverse(matrix):
    return inverse_of(matrix) @ symmetric(matrix)


# ------------------------------------------------------------ spectra: eigenvalues, singular values


@dg.delayed
def leading_projector(matrix):
    """Onto the eigenvector of the largest eigenvalue, whose sign is of no matter here."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return eigenvalues[-1] * np.outer(vectors[:, -1], vectors[:, -1])


def principal_component(matrix):
    return leading_projector(symmetric(matrix))


@dg.delayed
def nuclear(matrix):
    return np.sum(np.sqrt(1.0 + np.linalg.svd(matrix, compute_uv=False)))


def nuclear_norm(matrix):
    return nuclear(matrix)


# ----------------------------------------------- a Gaussian process, through the factor of Cholesky

PLACES = np.array([0.0, 0.4, 1.1, 1.7])
HEIGHTS = np.array([0.2, 0.9, 0.1, -0.8])


@dg.delayed
def covariance(logs, places):
    length, signal, noise = np.exp(logs["length"]), np.exp(logs["signal"]), np.exp(logs["noise"])
    squares = (places[:, None] - places[None, :]) ** 2
    return signal * np.exp(-0.5 * squares / length**2) + noise * np.eye(len(places))


@dg.delayed
def factor(matrix):
    return np.linalg.cholesky(matrix)


@dg.delayed
def whitened(lower, heights):
    return autograd.scipy.linalg.solve_triangular(lower, heights, lower=True)


@dg.delayed
def gaussian_log_density(lower, white):
    constant = 0.5 * len(white) * math.log(2.0 * math.pi)
    return -0.5 * np.dot(white, white) - np.sum(np.log(np.diag(lower))) - constant


def gaussian_process(logs, places):
    lower = factor(covariance(logs, places))
    return gaussian_log_density(lower, whitened(lower, HEIGHTS))


# --------------------------------------------------------------------------------- tensors


@dg.delayed
def train_link(left, core):
    return np.einsum("a,aib->ib", left, core)


@dg.delayed
def train_end(link, vector):
    return np.tensordot(vector, link, axes=1)


def tensor_train(cores, vectors):
    left = np.ones(2)
    for core, end in zip(cores, vectors, strict=True):
        left = train_end(train_link(left, core), end)
    return left


PROBLEMS = (
    scalar(log_determinant, SQUARE),
    vector(linear_solve, SQUARE, drawn(81, 3, 2)),
    vector(matrix_inverse, SQUARE),
    vector(principal_component, drawn(82, 3, 3)),
    scalar(nuclear_norm, drawn(83, 3, 2)),
    scalar(gaussian_process, {"length": -0.3, "signal": 0.2, "noise": -1.5}, PLACES),
    vector(
        tensor_train,
        [drawn(84 + i, 2, 2, 2) for i in range(3)],
        [drawn(87 + i, 2) for i in range(3)],
    ),
)
