from bridge import model


def set_up(y, X):
    given = {"N": len(y), "K": X.shape[1], "y": y.astype(int).tolist(), "X": X.tolist()}
    return {"reduce_sum": model("w1", given | {"grainsize": len(y)})}
