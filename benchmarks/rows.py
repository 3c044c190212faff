"""Models that use some rows of a large array: a step of value, gradient and update.

    python benchmarks/rows.py [--quick] [--rounds N] [--results DIR]

What is measured: the time by the clock of one step, for an array W of n = 10^3 to 10^6 rows (or
columns) of 784 single-precision numbers (3 GB), of which a step uses 50, other ones each time. The
peers take turns, in random order, in a process for each n. A turn is steps for 0.1 s, at least
two, after as many that do not count, since the turn before may have gone through gigabytes. Times
are medians of a turn's steps, and of the rounds. All change one array, but JAX, which has its own.
Memory is the most that a step holds beside what there was before, by ``tracemalloc``. First the
values of three steps are compared, for n = 1,000.

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

Claims, where n is 10^4 and more: faster than all peers; at the largest n at most 10 MB of memory,
and at most 1.1 times the time at 10^4, of which is left out what the slice that is taken out takes
longer: it comes from memory, where at 10^4 the cache of a processor may hold all of W. Columns in C
order stand in 39,200 lines of memory, which every way reaches twice, to read and to change them:
there is no claim on how their time grows.
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
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np

import daskgrad as dg
from hosts import plain_environment
from report import at_most, finish, options, table

SIZES = (10**3, 10**4, 10**5, 10**6)
FEW = 50  # rows of a step
WIDTH = 784
RATE = np.float32(1e-3)
BY_SLICE, DENSE = "autograd, the slice taken out", "autograd, dense"
TORCH, TORCH_SPARSE, JAX = "PyTorch, dense", "PyTorch, sparse embedding", "JAX, compiled"
OURS = "daskgrad"
FORTRAN = "columns in Fortran's order"
COLUMNS = ("columns", FORTRAN)
TURN = 0.1  # seconds of steps

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
    state = [np.zeros_like(W) for _ in range(2 * (program == "adam"))]

    def step(S: np.ndarray) -> float:
        at = (slice(None), S) if program in COLUMNS else S
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


def dense(model: Callable, params: Any, x: np.ndarray) -> Step:
    gradient = autograd.value_and_grad(model)
    arrays = params if isinstance(params, dict) else {"": params}

    def step(S: np.ndarray) -> float:
        value, g = gradient(params, x, S)
        for name, array in arrays.items():
            array -= RATE * (g[name] if name else g)
        return float(value)

    return step


def by_torch(program: str, params: Any, x: np.ndarray, is_sparse: bool) -> Step:
    import torch

    torch.set_num_threads(1)
    arrays = params if isinstance(params, dict) else {"": params}
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


def peers_of(program: str, params: Any, x: np.ndarray) -> dict[str, Step]:
    model = {**dict.fromkeys(COLUMNS, of_columns), "layers": of_layers}.get(program, of_rows)
    opt = dg.optim.Adam(float(RATE)) if program == "adam" else dg.optim.SGD(float(RATE))
    found = {OURS: ours(model, params, x, opt)}
    if program != "layers":
        found[BY_SLICE] = by_slice(program, params, x)
    if program == FORTRAN:
        return found
    if program != "adam":
        found[DENSE] = dense(model, params, x)
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


def measure(program: str, n: int, rounds: int, pipe: Any) -> None:
    """Times of steps by peer, and the memory of one of ours: in a process of its own."""
    generator = np.random.default_rng(n)
    x = generator.normal(size=WIDTH).astype(np.float32)
    require_same(program, x, generator)

    def chosen() -> np.ndarray:
        return generator.choice(n, FEW, replace=False)

    peers = peers_of(program, make_params(program, n), x)
    times: dict[str, list[float]] = {name: [] for name in peers}
    shuffle = random.Random(0)
    for number in range(-1, rounds):  # what is compiled is compiled before the first
        for name in shuffle.sample(list(peers), len(peers)):
            for _ in ("not counted", "counted"):
                found = seconds(peers[name], chosen)
            if number >= 0:
                times[name].append(found)
    pipe.send((times, memory(peers[OURS], chosen())))


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


def seconds(step: Step, chosen: Callable[[], np.ndarray]) -> float:
    """The median of a turn's steps."""
    found: list[float] = []
    while len(found) < 2 or sum(found) < TURN:
        S = chosen()
        start = time.perf_counter()
        step(S)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def memory(step: Step, S: np.ndarray) -> int:
    tracemalloc.start()
    try:
        step(S)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(program: str, n: int, rounds: int) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    process = spawn.Process(target=measure, args=(program, n, rounds, theirs))
    process.start()
    theirs.close()
    try:
        times, nbytes = mine.recv()
    except EOFError:
        raise SystemExit(f"{program} of {n} rows failed; its error is printed above") from None
    process.join()
    medians = {name: statistics.median(each) for name, each in times.items()}
    return {"program": program, "n": n, "seconds": medians, "nbytes": nbytes, "all seconds": times}


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


def draw(found: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    largest = [each for each in found if each["n"] == max(e["n"] for e in found)]
    pairs = [(each, name) for each in largest for name in each["seconds"]]
    names = [f"{each['program']}: {name}" for each, name in pairs]
    plot = bars(names, [1e3 * each["seconds"][name] for each, name in pairs], "ms a step", "log")
    return page(f"A step with {FEW} of {largest[0]['n']:,} rows", stated, plot)


def claims_of(found: list[dict[str, Any]]) -> Iterator[Any]:
    by_size = {(each["program"], each["n"]): each for each in found}
    for (program, n), each in by_size.items():
        if n < SIZES[1]:
            continue
        mine, others = each["seconds"][OURS], dict(each["seconds"])
        del others[OURS]
        best = min(others, key=lambda name: others[name])
        yield at_most(f"{program} of {n:,}: time over {best}", mine / others[best], 1.0)
    for program in dict.fromkeys(name for name, _ in by_size):
        sizes = [n for name, n in by_size if name == program and n >= SIZES[1]]
        if len(sizes) < 2:
            continue
        first, last = by_size[program, min(sizes)], by_size[program, max(sizes)]
        yield at_most(f"{program} of {max(sizes):,}: MB of a step", last["nbytes"] / 1e6, 10)
        if program != "columns":
            longer = last["seconds"].get(BY_SLICE, 0.0) - first["seconds"].get(BY_SLICE, 0.0)
            flat = (last["seconds"][OURS] - max(0.0, longer)) / first["seconds"][OURS]
            yield at_most(f"{program} of {max(sizes):,} over {min(sizes):,}", flat, 1.1)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 11)
    plain_environment()
    sizes = SIZES[:2] if arguments.quick else SIZES
    programs = ("rows", *COLUMNS, "layers", "adam")
    found = [measured(program, n, arguments.rounds) for program in programs for n in sizes]
    print(printed(found))
    claims = list(claims_of(found))
    return finish("rows", arguments, {"steps": found}, claims, functools.partial(draw, found))


if __name__ == "__main__":
    sys.exit(main())
