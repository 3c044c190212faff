import autograd
import autograd.numpy as np


def term(z, counts, X, shared):
    eta = shared[3] + np.exp(shared[4]) * z + np.dot(X, shared[:3])
    return np.sum(counts * eta - np.exp(eta)) - 0.5 * z**2


def set_up(counts, Xs):
    groups = list(zip(counts, Xs, strict=True))

    def loop(x):
        return sum(term(x[5 + i], *group, x[:5]) for i, group in enumerate(groups))

    rows, X = np.concatenate(counts), np.concatenate(Xs)
    group = np.repeat(np.arange(len(Xs)), [len(each) for each in Xs])

    def flat(x):
        eta = x[3] + np.exp(x[4]) * x[5:][group] + np.dot(X, x[:3])
        return np.sum(rows * eta - np.exp(eta)) - 0.5 * np.sum(x[5:] ** 2)

    return {
        "loop over groups": autograd.value_and_grad(loop),
        "flat rows": autograd.value_and_grad(flat),
    }
