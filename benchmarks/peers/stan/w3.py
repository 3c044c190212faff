from bridge import model


def set_up(starts, observed):
    given = {
        "T": len(starts),
        "starts": starts.tolist(),
        "observed": observed.tolist(),
        "grainsize": len(starts),
    }
    return {"reduce_sum": model("w3", given | {"steps": 200, "h": 0.02, "every": 20})}
