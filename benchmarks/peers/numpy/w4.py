import numpy as np
from by_hand import adjoint, states


def set_up(parts):
    def both(x):
        outputs, kept, g = {}, {}, np.zeros_like(x)
        for i, (key, (*matrices, before)) in enumerate(parts.items()):
            us = [outputs[b] for b in before] or [x[:5]]
            outputs[key], kept[key] = states(matrices, us, x[5 + i])
        of = {key: 2 * outputs[key] if key[0] == 4 else 0.0 for key in parts}
        for i, (key, (*matrices, before)) in reversed(list(enumerate(parts.items()))):
            of_u, g[5 + i] = adjoint(matrices, x[5 + i], kept[key], of[key])
            for b in before:
                of[b] = of[b] + of_u
            g[:5] += 0 if before else of_u
        return sum(np.sum(outputs[4, k] ** 2) for k in range(10)), g

    return {"by hand": both}
