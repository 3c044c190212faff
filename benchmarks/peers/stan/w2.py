import numpy as np
from bridge import model


def set_up(counts, Xs):
    sizes = np.array([len(each) for each in Xs])
    given = {
        "G": len(sizes),
        "N": int(sizes.sum()),
        "first": (np.cumsum(sizes) - sizes + 1).tolist(),
        "length": sizes.tolist(),
        "counts": np.concatenate(counts).tolist(),
        "X": np.concatenate(Xs).tolist(),
        "grainsize": len(sizes),
    }
    return {"reduce_sum": model("w2", given)}
