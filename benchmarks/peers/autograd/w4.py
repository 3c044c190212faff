import autograd
import autograd.numpy as np


def component(matrices, us, p):
    M, B, C = matrices
    b = np.dot(B, sum(us))
    x = b
    for _ in range(50):
        x = np.tanh(p * np.linalg.solve(M + np.diag(x), b))
    return np.dot(C, x)


def set_up(parts):
    def objective(x):
        outputs = {}
        for p, (key, (*matrices, before)) in zip(x[5:], parts.items(), strict=True):
            outputs[key] = component(matrices, [outputs[b] for b in before] or [x[:5]], p)
        return sum(np.sum(outputs[4, k] ** 2) for k in range(10))

    return {"one tape": autograd.value_and_grad(objective)}
