"""Models that use some rows of a large array: a step of value, gradient and update.

    python benchmarks/rows.py [--quick] [--rounds N] [--results DIR]

What is measured: the time by the clock of one step, for an array W of n = 10^3 to 10^6 rows (or
columns) of 784 single-precision numbers (3 GB), of which a step uses 50, other ones each time. The
peers take turns, in random order, in a process for each n: first those that touch these rows alone,
then daskgrad and those that are dense, which take thousands of times as long, in few rounds. How
the time grows is measured in one more process, which has the array of 10^4 and that of 10^6 at
once, in twice as many rounds. A turn is steps for 0.1 s (quick: 0.02 s), at least two, after as
many that do not count, since the turn before may have gone through gigabytes. A time is the median
over the rounds of the median of a turn's steps, a ratio the median over the rounds. All change one
array, but JAX, which has its own. Memory is the most that a step holds beside what there was
before, by ``tracemalloc``. First the values of three steps are compared, for n = 1,000.

The programs:

- rows: ``sum((W[S] @ x)**2)``, and SGD;
- columns: ``sum(x * W[:, S])``, and SGD: 784 x n numbers in C order, of which a step touches one in
  each of 39,200 places;
- columns in Fortran's order: the same, of an array in which a column stands together. The only peer
  is the slice that is taken out: what is dense takes the time that it takes for columns;
- layers: ``W1[S] @ x``, from which the rows of W2 are found, and a loss of ``W2[T] @ ...``; SGD of
  both;
- adam: as rows, and Adam.

The peers: autograd with respect to the slice, which a user takes out before and writes back after
the step (not possible for layers, where the second slice is found within the model); autograd with
respect to W, and a dense update; PyTorch with a dense gradient; PyTorch with a sparse embedding
(SparseAdam for adam); JAX, compiled, whose step gives the old W away. Libraries that are not
installed are left out.

Claims, where n is 10^4 and more: faster than all peers, and for columns in C order at most 1.2
times the time of the slice that is taken out; at the largest n at most 10 MB of memory, and at most
1.1 times the time at 10^4, of what a step takes beyond reading its rows and writing them back,
which is measured beside it. At 10^4 a processor's cache may hold all of W (31 MB), and at 10^6 the
rows come from memory; the ratio of whole steps is printed, too. Columns in C order stand in 39,200
lines of memory, which every way reaches twice, to read and to change them: there is no claim on how
their time grows.
"""

import functools
import importlib.util
import multiprocessing
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import autograd
import autograd.numpy as anp
import numpy as np

import daskgrad as dg
from hosts import plain_environment
from report import Claim, at_most, finish, options, ratio, table

SIZES = (10**3, 10**4, 10**5, 10**6)
FEW = 50  # rows of a step
WIDTH = 784
RATE = np.float32(1e-3)
BY_SLICE, DENSE = "autograd, the slice taken out", "autograd, dense"
TORCH, TORCH_SPARSE, JAX = "PyTorch, dense", "PyTorch, sparse embedding", "JAX, compiled"
OURS = "daskgrad"
MOVED = "rows read and written"
BEYOND = "daskgrad beyond these"
ARE_DENSE = (DENSE, TORCH, JAX)
FORTRAN = "columns in Fortran's order"
COLUMNS = ("columns", FORTRAN)
TURN, QUICK_TURN = 0.1, 0.02  # seconds of steps
DENSE_ROUNDS = 3  # at most, where dense peers take part

Step = Callable[[np.ndarray], float]  # of the rows to use: returns the value


# ------------------------------------------------------------------------------------- models


def of_rows(W: Any, x: Any, S: Any) -> Any:
    return anp.sum((W[S] @ x) ** 2)


def of_columns(W: Any, x: Any, S: Any) -> Any:
    return anp.sum(x[:, None] * W[:, S])


def of_slice(V: Any, x: Any) -> Any:
    return anp.sum((V @ x) ** 2)


def of_column_slice(V: Any, x: Any) -> Any:
    return anp.sum(x[:, None] * V)


def of_layers(weights: Any, x: Any, S: Any) -> Any:
    h = anp.tanh(weights["W1"][S] @ x)
    T = (np.argsort(h) * 7919 + 13) % len(weights["W2"])
    return anp.sum((weights["W2"][T, :FEW] @ h) ** 2)


def found_rows(h: Any, n: int, numpy: Any) -> Any:
    """The same in other libraries."""
    return (numpy.argsort(h) * 7919 + 13) % n


# -------------------------------------------------------------------------------------- peers


def ours(model: Callable, params: Any, x: np.ndarray, opt: Any) -> Step:
    gradient = dg.value_and_grad(dg.delayed(model), sparse=True)
    state = opt.init(params)

    def step(S: np.ndarray) -> float:
        value, rows = gradient(params, x, S)
        opt.update(params, rows, state)
        return float(value)

    return step


def by_slice(program: str, W: np.ndarray, x: np.ndarray) -> Step:
    """What a user writes who knows the rows before; Adam's state has slices, too."""
    gradient = autograd.value_and_grad(of_column_slice if program in COLUMNS else of_slice)
    opt, count = dg.optim.Adam(float(RATE)), np.zeros((), np.int64)
    state = slots_of(program, W)

    def step(S: np.ndarray) -> float:
        at = place_of(program, S)
        V, *slots = [array[at] for array in (W, *state)]
        value, g = gradient(V, x)
        if program == "adam":
            count[...] += 1
            opt.step(V, g, float(RATE), count, *slots)
        else:
            V -= RATE * g
        for array, part in zip((W, *state), (V, *slots), strict=True):
            array[at] = part
        return float(value)

    return step


def slots_of(program: str, W: np.ndarray) -> list[np.ndarray]:
    """What the optimiser keeps of the array."""
    return [np.zeros_like(W) for _ in range(2 * (program == "adam"))]


def place_of(program: str, S: np.ndarray) -> Any:
    return (slice(None), S) if program in COLUMNS else S


def arrays_of(params: Any) -> dict[str, np.ndarray]:
    return params if isinstance(params, dict) else {"": params}


def moved(program: str, params: Any) -> Step:
    """Reads the rows of all arrays of a step, and writes them back."""
    arrays = [*arrays_of(params).values(), *slots_of(program, params)]

    def step(S: np.ndarray) -> float:
        at = place_of(program, S)
        for array in arrays:
            array[at] = array[at]
        return 0.0

    return step


def dense(model: Callable, params: Any, x: np.ndarray) -> Step:
    gradient = autograd.value_and_grad(model)
    arrays = arrays_of(params)

    def step(S: np.ndarray) -> float:
        value, g = gradient(params, x, S)
        for name, array in arrays.items():
            array -= RATE * (g[name] if name else g)
        return float(value)

    return step


def by_torch(program: str, params: Any, x: np.ndarray, is_sparse: bool) -> Step:
    import torch

    torch.set_num_threads(1)
    arrays = arrays_of(params)
    weights = {name: torch.from_numpy(array).requires_grad_() for name, array in arrays.items()}
    kinds = {True: torch.optim.SparseAdam, False: torch.optim.Adam}
    kind = kinds[is_sparse] if program == "adam" else torch.optim.SGD
    opt, given = kind(list(weights.values()), lr=float(RATE)), torch.from_numpy(x)

    def rows(name: str, S: Any) -> Any:
        if is_sparse:
            return torch.nn.functional.embedding(S, weights[name], sparse=True)
        return weights[name][S]

    def value_of(S: Any) -> Any:
        if program == "columns":
            return (given[:, None] * weights[""][:, S]).sum()
        if program != "layers":
            return ((rows("", S) @ given) ** 2).sum()
        h = torch.tanh(rows("W1", S) @ given)
        T = found_rows(h.detach(), len(weights["W2"]), torch)
        return ((rows("W2", T)[:, :FEW] @ h) ** 2).sum()

    def step(S: np.ndarray) -> float:
        opt.zero_grad()
        value = value_of(torch.from_numpy(S))
        value.backward()
        opt.step()
        return float(value.detach())

    return step


def by_jax(program: str, params: Any, x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    def model(weights: Any, x: Any, S: Any) -> Any:
        if program == "columns":
            return jnp.sum(x[:, None] * weights[:, S])
        if program != "layers":
            return jnp.sum((weights[S] @ x) ** 2)
        h = jnp.tanh(weights["W1"][S] @ x)
        T = found_rows(h, len(weights["W2"]), jnp)
        return jnp.sum((weights["W2"][T, :FEW] @ h) ** 2)

    def update(weights: Any, x: Any, S: Any) -> Any:
        value, g = jax.value_and_grad(model)(weights, x, S)
        return value, jax.tree.map(lambda w, g: w - RATE * g, weights, g)

    compiled = jax.jit(update, donate_argnums=0)
    kept = [jax.tree.map(jnp.array, params)]

    def step(S: np.ndarray) -> float:
        value, kept[0] = compiled(kept[0], x, S)
        return float(value)

    return step


def model_of(program: str) -> Callable:
    return {**dict.fromkeys(COLUMNS, of_columns), "layers": of_layers}.get(program, of_rows)


def that_touch_rows(program: str, params: Any, x: np.ndarray) -> dict[str, Step]:
    """daskgrad and, where it can be taken out, the slice."""
    opt = dg.optim.Adam(float(RATE)) if program == "adam" else dg.optim.SGD(float(RATE))
    found = {OURS: ours(model_of(program), params, x, opt)}
    if program != "layers":
        found[BY_SLICE] = by_slice(program, params, x)
    return found


def peers_of(program: str, params: Any, x: np.ndarray) -> dict[str, Step]:
    found = that_touch_rows(program, params, x)
    if program == FORTRAN:
        return found
    if program != "adam":
        found[DENSE] = dense(model_of(program), params, x)
    if is_there("jax") and program != "adam":
        found[JAX] = by_jax(program, params, x)
    if is_there("torch"):
        if program != "adam" or params.nbytes < 2**30:  # it holds four times the array
            found[TORCH] = by_torch(program, params, x, False)
        if program != "columns":
            found[TORCH_SPARSE] = by_torch(program, params, x, True)
    return found


def is_there(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def make_params(program: str, n: int) -> Any:
    shape = (WIDTH, n) if program == "columns" else (n, WIDTH)
    shapes = {"W1": shape, "W2": (n, 2 * FEW)} if program == "layers" else {"": shape}
    made = {}
    for name, size in shapes.items():
        array = made[name] = np.empty(size, np.float32)
        for row in array:  # in place: no second array
            row[:] = 0.01
    if program == "layers":
        return made
    return made[""].T if program == FORTRAN else made[""]


# ---------------------------------------------------------------------------------- measuring


def measure(program: str, n: int, rounds: int, turn: float) -> dict[str, Any]:
    """Times of the peers, and the memory of one of our steps."""
    x, generator = beginning()
    require_same(program, x, generator)
    peers = peers_of(program, make_params(program, n), x)
    steps = {name: Turn(step, n, generator, turn) for name, step in peers.items()}
    dense = {name: turn for name, turn in steps.items() if name in ARE_DENSE}
    near = {name: turn for name, turn in steps.items() if name not in ARE_DENSE}
    times = in_turns(near, rounds)
    over = {name: ratio(times[OURS], times[name]) for name in near if name != OURS}
    if dense:
        mixed = in_turns({OURS: steps[OURS], **dense}, min(rounds, DENSE_ROUNDS))
        over.update({name: ratio(mixed[OURS], mixed[name]) for name in dense})
        times.update({name: mixed[name] for name in dense})
    return {
        "program": program,
        "n": n,
        "seconds": medians(times),
        "ours over": over,
        "nbytes": memory(peers[OURS], chosen(n, generator)),
        "all seconds": times,
    }


def measure_growth(
    program: str, sizes: tuple[int, int], rounds: int, turn: float
) -> dict[str, Any]:
    """The time at one size over that at another, for what touches the rows alone."""
    x, generator = beginning()
    steps = {}
    for n in sizes:
        params = make_params(program, n)
        peers = {**that_touch_rows(program, params, x), MOVED: moved(program, params)}
        for name, step in peers.items():
            steps[name, n] = Turn(step, n, generator, turn)
    times = in_turns(steps, 2 * rounds)  # the difference is small
    first, last = sizes
    for n in sizes if program != "columns" else ():
        pairs = zip(times[OURS, n], times[MOVED, n], strict=True)
        times[BEYOND, n] = [step - rows for step, rows in pairs]
    names = [name for name, n in times if n == last]
    growth = {name: ratio(times[name, last], times[name, first]) for name in names}
    return {"program": program, "sizes": sizes, "growth": growth}


def beginning() -> tuple[np.ndarray, np.random.Generator]:
    """What all models get, and what chooses rows."""
    generator = np.random.default_rng(1)
    return generator.normal(size=WIDTH).astype(np.float32), generator


class Turn(NamedTuple):
    """A turn of a peer: called, gives the median of its steps."""

    step: Step
    n: int
    generator: np.random.Generator
    seconds: float

    def __call__(self) -> float:
        found: list[float] = []
        while len(found) < 2 or sum(found) < self.seconds:
            S = chosen(self.n, self.generator)
            start = time.perf_counter()
            self.step(S)
            found.append(time.perf_counter() - start)
        return statistics.median(found)


def chosen(n: int, generator: np.random.Generator) -> np.ndarray:
    return generator.choice(n, FEW, replace=False)


def in_turns(turns: dict[Any, Turn], rounds: int) -> dict[Any, list[float]]:
    """The times of each in each round, in random order; what is compiled is compiled before."""
    times: dict[Any, list[float]] = {name: [] for name in turns}
    shuffle = random.Random(0)
    for number in range(-1, rounds):
        for name in shuffle.sample(list(turns), len(turns)):
            turns[name]()
            found = turns[name]()
            if number >= 0:
                times[name].append(found)
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in times.items()}


def require_same(program: str, x: np.ndarray, generator: np.random.Generator) -> None:
    """Each peer, with parameters of its own, has the same values in three steps. Their rows differ,
    since optimisers do between the steps of a row; but for SGD, the last are the first again."""
    few = list(generator.permutation(1000)[: 3 * FEW].reshape(3, FEW))
    few[2] = few[2] if program == "adam" else few[0]
    values = {}
    for name in peers_of(program, make_params(program, 1000), x):
        step = peers_of(program, make_params(program, 1000), x)[name]
        values[name] = [step(S) for S in few]
    for name, found in values.items():
        if not np.allclose(found, values[OURS], rtol=1e-3):
            raise SystemExit(f"{program}: {name} has the values {found}, not {values[OURS]}")


def memory(step: Step, S: np.ndarray) -> int:
    tracemalloc.start()
    try:
        step(S)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def alone(function: Callable, *args: Any) -> Any:
    """What the function returns in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *args).result()


# ------------------------------------------------------------------------------------ telling


def printed(found: list[dict[str, Any]]) -> str:
    names = [OURS, BY_SLICE, DENSE, TORCH, TORCH_SPARSE, JAX]
    rows = [
        (
            each["program"],
            f"{each['n']:,}",
            *[f"{1e3 * each['seconds'][n]:.3f}" if n in each["seconds"] else "" for n in names],
            f"{each['nbytes'] / 1e6:.2f}",
        )
        for each in found
    ]
    return table(("program", "n", *[f"{name}, ms" for name in names], "our MB"), rows)


def printed_growth(found: list[dict[str, Any]]) -> str:
    names = (OURS, BY_SLICE, MOVED, BEYOND)
    rows = [
        (
            each["program"],
            *[f"{each['growth'][n]:.2f}" if n in each["growth"] else "" for n in names],
        )
        for each in found
    ]
    first, last = found[0]["sizes"]
    return table((f"time at {last:,} over {first:,}", *names), rows)


def draw(found: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    largest = [each for each in found if each["n"] == max(e["n"] for e in found)]
    pairs = [(each, name) for each in largest for name in each["seconds"]]
    names = [f"{each['program']}: {name}" for each, name in pairs]
    plot = bars(names, [1e3 * each["seconds"][name] for each, name in pairs], "ms a step", "log")
    return page(f"A step with {FEW} of {largest[0]['n']:,} rows", stated, plot)


def claims_of(found: list[dict[str, Any]]) -> Iterator[Claim]:
    for each in [each for each in found if each["n"] >= SIZES[1]]:
        name, most = max(each["ours over"].items(), key=lambda pair: pair[1])
        limit = 1.2 if each["program"] == "columns" else 1.0
        yield at_most(f"{each['program']} of {each['n']:,}: time over {name}", most, limit)
        if each["n"] == SIZES[-1]:
            megabytes = each["nbytes"] / 1e6
            yield at_most(f"{each['program']} of {each['n']:,}: MB of a step", megabytes, 10)


def claims_of_growth(found: list[dict[str, Any]]) -> Iterator[Claim]:
    for each in found:
        if BEYOND in each["growth"]:
            first, last = each["sizes"]
            what = f"{each['program']} of {last:,}: time over {first:,}, beyond moving rows"
            yield at_most(what, each["growth"][BEYOND], 1.1)


def main() -> int:
    arguments = options(__doc__).parse_args()
    rounds = arguments.rounds = arguments.rounds or (2 if arguments.quick else 11)
    plain_environment()
    sizes = SIZES[:2] if arguments.quick else SIZES
    turn = QUICK_TURN if arguments.quick else TURN
    programs = ("rows", *COLUMNS, "layers", "adam")
    found = [alone(measure, program, n, rounds, turn) for program in programs for n in sizes]
    ends = (sizes[0] if arguments.quick else SIZES[1], sizes[-1])
    growth = [alone(measure_growth, program, ends, rounds, turn) for program in programs]
    print(printed(found), printed_growth(growth), sep="\n\n")
    claims = [*claims_of(found), *claims_of_growth(growth)]
    drawing = functools.partial(draw, found)
    return finish("rows", arguments, {"steps": found, "growth": growth}, claims, drawing)


if __name__ == "__main__":
    sys.exit(main())
