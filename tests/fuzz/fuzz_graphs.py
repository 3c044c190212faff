"""Random graphs: the gradient is plain autograd's, with the same bits on every scheduler."""

import concurrent.futures
import functools
import multiprocessing
import warnings

import dask
import hypothesis
import programs
from distributed import Client

import daskgrad as dg

EXACT = 1e-11  # of the largest entry of a gradient


def graph(seed):
    """The last of a few that Hypothesis draws, of which the first is the simplest one."""
    drawn = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=4,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(programs.programs())
    def draw(program):
        drawn.append(program)

    draw()
    return drawn[-1]


@functools.cache
def places():
    """Settings for Dask; what they start ends with this process."""
    forkserver = multiprocessing.get_context("forkserver")
    pool = concurrent.futures.ProcessPoolExecutor(2, mp_context=forkserver)
    client = Client(processes=False, n_workers=2, dashboard_address=":0", set_as_default=False)
    return {
        "sync": {"scheduler": "sync"},
        "threads": {"scheduler": "threads"},
        "processes": {"scheduler": "processes", "pool": pool},
        "cluster": {"scheduler": client.get},
        "in line": {"scheduler": "sync", "daskgrad.inline.seconds": 60},
    }


def gradient(program, setting):
    both = dg.value_and_grad(program, argnums=(0, 1, 2))
    with dask.config.set({"daskgrad.inline.seconds": 0, **setting}):
        for _ in range(2):  # in line without a graph then
            value, gradients = both(*program.arguments)
    return float(value), gradients


def is_right(program, value, gradients):
    plain = program.plain(*program.arguments)
    is_near = abs(value - plain) <= EXACT * max(1.0, abs(plain))
    return is_near and programs.error(program, gradients) <= EXACT


def differences(seed, counts):
    counts["graphs"] += 1
    texts, bits = [], {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = graph(seed)
        for name, setting in places().items():
            value, gradients = gradient(program, setting)
            bits[name] = value, programs.flat(gradients).tobytes()
            if name == "sync" and not is_right(program, value, gradients):
                texts.append(f"not plain autograd's: {program}")
    others = [name for name in bits if bits[name] != bits["sync"]]
    return texts + [f"other bits on {', '.join(others)}: {program}"] * bool(others)
