from bridge import model


def set_up(y, X):
    given = {"N": len(y), "K": X.shape[1], "y": y.astype(int).tolist(), "X": X.tolist()}
    given["grainsize"] = len(y)
    return {
        "reduce_sum, bernoulli_logit": model("w1", given),
        "reduce_sum, bernoulli_logit_glm": model("w1_glm", given),
    }
