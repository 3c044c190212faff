"""Arrays on which a wrong order of addition shows, and arrays as they come in messages."""

import numpy as np


def decades(*shape, seed=0, count=16):
    """Numbers over many decades: added in any other order they give other bits.

    Of a few numbers over 16 decades only the largest counts; these need fewer.
    """
    random = np.random.default_rng(seed)
    return random.normal(size=shape) * 10.0 ** random.uniform(-count / 2, count / 2, shape)


def askew(array):
    """A copy of an array that begins one byte off, as it may in a message."""
    buffer = bytearray(array.nbytes + 1)
    buffer[1:] = array.tobytes()
    moved = np.frombuffer(memoryview(buffer)[1:], array.dtype).reshape(array.shape)
    assert not moved.flags.aligned
    return moved
