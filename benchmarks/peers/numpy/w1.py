import numpy as np


def set_up(y, X):
    def both(beta):
        eta = X @ beta
        value = np.sum(y * eta - np.logaddexp(0.0, eta))
        return value, (y - 1 / (1 + np.exp(-eta))) @ X

    return {"by hand": both}
