"""Arrays on which a wrong order of addition shows."""

import numpy as np


def decades(*shape, seed=0):
    """Numbers over 16 decades: added in any other order they give other bits."""
    random = np.random.default_rng(seed)
    return random.normal(size=shape) * 10.0 ** random.uniform(-8, 8, shape)
