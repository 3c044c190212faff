"""A sub-linear network: of 200,000 output neurons a sample computes the 32 that hashing finds.

After B. Chen et al., SLIDE: In defense of smart algorithms over hardware acceleration for
large-scale deep learning systems, MLSys 2020. Hash tables hold the rows of the output layer's
matrix. A sample's hidden layer is hashed as the rows are, and its active neurons are the nearest of
those that stand in the same buckets, with the true label in training. The softmax is over these
alone. So the gradient of the matrix is some rows (`sparse="output"`), Adam changes these in place,
and only they are hashed again: no part of a step looks at all neurons.

The hash is SimHash (M. Charikar, STOC 2002): the signs of 128 random projections, of which each
table takes some at random (P. Indyk, R. Motwani, STOC 1998). How many of all signs differ tells the
angle, and so which candidates are nearest. A bucket has a fixed number of slots, and a neuron one
of them in each table, drawn once. True labels push others out, and wrong ones take free slots.

Three networks of the same sizes see the same samples: the sub-linear one, the dense one, and one
whose active neurons are drawn at random. The data:

- digits: the 1,797 images of scikit-learn, and 10 labels, of which 4 are active;
- labels in families: made here. A label is a random direction of 64 numbers, four fifths of whose
  variance it shares with the 31 others of its family; a sample is its label's direction with noise.
  The nth label occurs 1/n as often as the first. Whoever knew all directions would be right nearly
  always; but most labels are seen seldom, and must be told from their like.

What it loses and gains, on two cores (AMD EPYC): after the same steps, 0.984 of the digits and
0.891 of 16,384 labels are right; the dense network has 0.986 and 0.929, in six times the time for
the latter, and with neurons drawn at random it is 0.976 and 0.703. Of 200,000 labels 0.68 are right
after half a minute, in steps of 10 ms; the dense network, at 604 ms a step, has 0.28 by then, and
random neurons 0.29. All this compares all neurons for the test samples; if only those are compared
that the tables find, it is 0.83 and 0.49. A step with 131,072 neurons takes 1.1 to 1.3 times as
long as one with 16,384: a fifth more rows occur in it, and more of them change buckets. With ten
neurons, hashing costs more than it saves.

    python examples/slide.py                 # some minutes
    python examples/slide.py --quick         # seconds: small problems
    python examples/slide.py --plot slide.html

The script exits with an error if the sub-linear network is less precise than 0.95 for digits and
0.60 for 200,000 labels (if quick, 0.90, and 0.65 for 4,096), if its update by rows is not the dense
one, or if its tables are not those of its rows.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import daskgrad as dg
from daskgrad.scipy.special import logsumexp

FEATURES, WIDTH = 64, 128
BATCH, ACTIVE = 64, 32
BITS, TABLES, CAPACITY = 128, 48, 16  # signs of a row; tables; slots of a bucket
LOAD = 64  # neurons for each bucket of a table; most are of labels that were not seen yet
FAR = 255  # further than any number of signs that differ
FAMILY, SHARED, NOISE = 32, 0.8, 0.3
RATE, SPREAD = 1e-2, 0.02
EPS = 3e-4  # of Adam: else wrong neurons leave their buckets, however small their gradients
SIZES = (16_384, 32_768, 65_536, 131_072)

Pair = tuple[np.ndarray, np.ndarray]
Arrays = dict[str, np.ndarray]


# ---------------------------------------------------------------------------------------- data


class Problem(NamedTuple):
    name: str
    neurons: int
    active: int
    draw: Callable[[np.random.Generator, int], Pair]  # samples and their labels
    test: Pair


def digits() -> Problem:
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16.0).astype(np.float32), labels.astype(np.int32)
    known, test = np.split(np.random.default_rng(0).permutation(len(labels)), [1300])

    def draw(generator: np.random.Generator, count: int) -> Pair:
        chosen = generator.choice(known, count)
        return images[chosen], labels[chosen]

    return Problem("digits", 10, 4, draw, (images[test], labels[test]))


def families(neurons: int) -> Problem:
    """Labels that have a family, with frequencies of 1, 1/2, 1/3 ..."""
    generator = np.random.default_rng(neurons)
    shared = normal(generator, neurons // FAMILY + 1, FEATURES).repeat(FAMILY, axis=0)[:neurons]
    own = normal(generator, neurons, FEATURES)
    directions = np.float32(SHARED**0.5) * shared + np.float32((1.0 - SHARED) ** 0.5) * own
    frequencies = np.cumsum(1.0 / np.arange(1, neurons + 1))

    def draw(generator: np.random.Generator, count: int) -> Pair:
        labels = np.searchsorted(frequencies, frequencies[-1] * generator.random(count))
        noise = np.float32(NOISE) * normal(generator, count, FEATURES)
        return directions[labels] + noise, labels.astype(np.int32)

    return Problem(f"{neurons:,} labels", neurons, ACTIVE, draw, draw(generator, 1000))


def normal(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


# -------------------------------------------------------------------------------------- tables


def make_tables(matrix: np.ndarray) -> Arrays:
    """Tables of the rows of a matrix. A place is a slot's number among those of all tables."""
    generator, neurons = np.random.default_rng(2), len(matrix)
    bits = max(2, round(np.log2(neurons / LOAD)))
    powers = np.zeros((BITS, TABLES), np.float32)  # signs times this are the codes of all tables
    for column in powers.T:
        column[generator.choice(BITS, bits, replace=False)] = 2 ** np.arange(bits)
    quarters = np.kron(np.eye(BITS // 16), 2.0 ** np.arange(16)[:, np.newaxis])  # of words
    tables = {
        "planes": normal(generator, WIDTH, BITS),
        "powers": np.concatenate((powers, quarters.astype(np.float32)), axis=1),
        "buckets": np.full((TABLES, 2**bits, CAPACITY), -1, np.int32),
        "places": generator.integers(CAPACITY, size=(neurons, TABLES), dtype=np.int32),
        "signs": np.zeros((neurons, BITS // 64), np.uint64),
    }
    for rows in np.array_split(generator.permutation(neurons), neurons // 4096 + 1):
        rehash(tables, matrix, rows, labels=rows[:0])
    return tables


def hashed(vectors: np.ndarray, tables: Arrays) -> Pair:
    """The signs of each vector, in words of 64 bits, and the number of its bucket in each table."""
    signs = vectors @ tables["planes"] > 0
    sums = signs.astype(np.float32) @ tables["powers"]
    quarters = sums[:, TABLES:].astype(np.uint64).reshape(len(sums), -1, 4)
    words = np.sum(quarters << np.arange(0, 64, 16, dtype=np.uint64), axis=2)
    return words, sums[:, :TABLES].astype(np.int32)


def rehash(tables: Arrays, matrix: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> None:
    """Moves rows that changed to their new buckets. Labels push others out of their slots."""
    slots, places = tables["buckets"].reshape(-1), tables["places"]
    tables["signs"][rows], codes = hashed(matrix[rows], tables)
    first = np.arange(TABLES, dtype=np.int32) * tables["buckets"].shape[1]
    before = places[rows]
    places[rows] = after = (first + codes) * CAPACITY + before % CAPACITY
    is_label = np.isin(rows, labels)
    moved = np.flatnonzero((before != after) | is_label[:, np.newaxis])
    mine, may_push = rows.astype(np.int32)[moved // TABLES], is_label[moved // TABLES]
    old, new = before.ravel()[moved], after.ravel()[moved]
    leaves = np.flatnonzero(slots.take(old) == mine)  # others stand where they pushed this one out
    slots[old.take(leaves)] = -1
    enters = np.flatnonzero(may_push | (slots.take(new) < 0))
    slots[new.take(enters)] = mine.take(enters)


def nearest(h: np.ndarray, labels: np.ndarray, tables: Arrays, count: int) -> Pair:
    """The active neurons of each sample, from its buckets, and which of them there are."""
    words, codes = hashed(h, tables)
    found = tables["buckets"][np.arange(TABLES), codes].reshape(len(h), -1)
    found = with_labels(found, labels)
    others = np.take(tables["signs"], found, axis=0)
    distances = np.zeros(found.shape, np.uint8)
    for word in range(BITS // 64):
        distances = distances + np.bitwise_count(others[:, :, word] ^ words[:, word, np.newaxis])
    return first_of(found, distances, labels, count)


def with_labels(found: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.sort(np.concatenate((found, labels[:, np.newaxis]), axis=1), axis=1)


def first_of(found: np.ndarray, distances: np.ndarray, labels: np.ndarray, count: int) -> Pair:
    """The label of each sample, and then the nearest others, once each, of sorted candidates. Where
    there are not so many, the first one fills up."""
    distances = np.where(found == labels[:, np.newaxis], np.uint8(0), distances + np.uint8(1))
    is_again = np.concatenate((found[:, :1] < 0, found[:, 1:] == found[:, :-1]), axis=1)
    distances = np.where(is_again | (found < 0), np.uint8(FAR), distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    is_there = np.take_along_axis(distances, order, axis=1) < FAR
    active = np.take_along_axis(found, order, axis=1)
    return np.where(is_there, active, active[:, :1]), is_there


# -------------------------------------------------------------------------------------- models


def hidden(params: Arrays, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ params["input"] + params["bias"])


def active_loss(params: Arrays, h: np.ndarray, active: np.ndarray, is_there: np.ndarray) -> float:
    """The mean negative log-likelihood of a batch: of the first active neurons among the others."""
    logits = (params["output"][active] @ h[:, :, np.newaxis])[:, :, 0]
    logits = np.where(is_there, logits, np.float32(-1e9))
    return np.mean(logsumexp(logits, axis=1) - logits[:, 0])


def sub_linear(
    params: Arrays, x: np.ndarray, labels: np.ndarray, tables: Arrays, count: int
) -> float:
    """All samples of a batch at once: a sum of one model over them takes 25 times as long."""
    h = hidden(params, x)
    return active_loss(params, h, *nearest(dg.value(h), labels, tables, count))


def random_neurons(
    params: Arrays, x: np.ndarray, labels: np.ndarray, drawn: Pair, count: int
) -> float:
    active = first_of(with_labels(drawn[0], labels), drawn[1], labels, count)
    return active_loss(params, hidden(params, x), *active)


def dense(params: Arrays, x: np.ndarray, labels: np.ndarray) -> float:
    logits = hidden(params, x) @ params["output"].T
    return np.mean(logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels])


KINDS = {"sub-linear": sub_linear, "dense": dense, "random neurons": random_neurons}


class Network:
    """The parameters of a network, and what its training keeps."""

    def __init__(self, kind: str, problem: Problem, steps: int):
        generator = np.random.default_rng(0)
        self.kind, self.problem = kind, problem
        self.params = {
            "input": normal(generator, FEATURES, WIDTH) / np.float32(FEATURES**0.5),
            "bias": np.zeros(WIDTH, np.float32),
            "output": np.float32(SPREAD) * normal(generator, problem.neurons, WIDTH),
        }
        self.tables = make_tables(self.params["output"]) if kind == "sub-linear" else None
        rows = False if kind == "dense" else "output"
        self.gradient = dg.value_and_grad(dg.delayed(KINDS[kind]), sparse=rows)
        rate, eps = dg.optim.cosine(RATE, steps, RATE / 10), EPS if self.tables else 1e-8
        self.optimiser = dg.optim.Adam(rate, eps=eps)
        self.state = self.optimiser.init(self.params)
        self.samples, self.neurons = np.random.default_rng(1), np.random.default_rng(3)
        self.seconds = []

    def step(self) -> float:
        x, labels = self.problem.draw(self.samples, BATCH)
        begin = time.perf_counter()
        value, gradient = self.gradient(self.params, x, labels, *self.candidates())
        self.optimiser.update(self.params, gradient, self.state)
        if self.tables:
            rehash(self.tables, self.params["output"], gradient["output"].indices, labels)
        self.seconds.append(time.perf_counter() - begin)
        return float(value)

    def candidates(self) -> tuple:
        """What active neurons are chosen from, and how many."""
        if self.kind == "dense":
            return ()
        if self.tables:
            return self.tables, self.problem.active
        size = BATCH, 4 * self.problem.active  # more: in small problems many are drawn twice
        drawn = self.neurons.integers(self.problem.neurons, size=size, dtype=np.int32)
        order = self.neurons.integers(FAR - 1, size=(BATCH, size[1] + 1), dtype=np.uint8)
        return (drawn, order), self.problem.active

    def precisions(self) -> list[float]:
        """The share of test samples whose label is the first of all neurons, and of the active."""
        found, (x, labels) = [], self.problem.test
        for part in np.array_split(np.arange(len(x)), len(x) // 100):  # all logits: a gigabyte
            h = hidden(self.params, x[part])
            logits = h @ self.params["output"].T
            best = [np.argmax(logits, axis=1)]
            if self.tables:
                nobody = np.full(len(part), -1, np.int32)
                active, is_there = nearest(h, nobody, self.tables, self.problem.active)
                own = np.where(is_there, np.take_along_axis(logits, active, axis=1), -np.inf)
                best.append(active[np.arange(len(part)), np.argmax(own, axis=1)])
            found.append(np.array(best) == labels[part])
        return np.mean(np.concatenate(found, axis=1), axis=1).tolist()


# ------------------------------------------------------------------------------------ training


class Told(NamedTuple):
    step: int
    loss: float
    precisions: list[float]
    seconds: float  # of all steps until then
    each: float  # milliseconds of a step, the median


def train(network: Network, steps: int, limit: float) -> Iterator[Told]:
    """Takes steps, until they have taken so many seconds; tells how it goes."""
    values = []
    for number in range(1, steps + 1):
        values.append(network.step())
        taken = sum(network.seconds)
        if number % (steps // 5) == 0 or taken > limit:
            median = 1e3 * float(np.median(network.seconds))
            yield Told(number, float(np.mean(values)), network.precisions(), taken, median)
            values = []
        if taken > limit:
            return


def compare(problem: Problem, steps: int, is_limited: bool) -> dict[str, list[Told]]:
    """Trains the three networks; where limited, the dense one as long as the sub-linear one."""
    print(f"\n{problem.name}: {problem.active} active of {problem.neurons:,}, {steps:,} steps")
    told, limit = {}, np.inf
    for kind in KINDS:
        network, told[kind] = Network(kind, problem, steps), []
        for each in train(network, steps, limit if kind == "dense" else np.inf):
            told[kind].append(each)
            precisions = ", by tables alone ".join([f"{share:.3f}" for share in each.precisions])
            print(
                f"{kind:15} step {each.step:5,}   loss {each.loss:.3f}   "
                f"{each.each:6.1f} ms a step   precision {precisions}",
                flush=True,
            )
        if network.tables:
            require_same_tables(network)
            limit = each.seconds if is_limited else np.inf
    return told


def print_precisions(found: dict[str, dict[str, list[Told]]]) -> None:
    print("\nprecision@1, steps, ms" + "".join([f"{kind:>26}" for kind in KINDS]))
    for name, told in found.items():
        ends = [own[-1] for own in told.values()]
        cells = [f"{end.precisions[0]:8.3f}, {end.step:5,}, {end.each:5.1f}" for end in ends]
        print(f"{name:22}" + "".join([f"{cell:>26}" for cell in cells]))


# -------------------------------------------------------------------------------------- checks


def require_same_update(problem: Problem) -> None:
    """The gradient by rows and the first step of Adam are the dense ones, bit for bit."""
    network = Network("sub-linear", problem, 1)
    arguments = (*problem.draw(network.samples, BATCH), *network.candidates())
    rows = network.gradient(network.params, *arguments)[1]
    gradient = dg.grad(dg.delayed(sub_linear))(network.params, *arguments)
    print(f"the gradient of a batch: {rows['output']!r}")
    changed = []
    for each in (rows, gradient):
        params = {name: array.copy() for name, array in network.params.items()}
        network.optimiser.update(params, each, network.optimiser.init(params))
        changed.append(params["output"])
    if not np.array_equal(rows["output"].to_dense(), gradient["output"]):
        sys.exit("the gradient by rows is not the dense one")
    if not np.array_equal(*changed):
        sys.exit("the update by rows is not the dense one")


def require_same_tables(network: Network) -> None:
    """Who stands in a slot has its place there, and the signs are those of the rows, but for some
    projections that are zero up to rounding."""
    tables = network.tables
    slots = tables["buckets"].reshape(-1)
    taken = np.flatnonzero(slots >= 0)
    places = tables["places"][slots[taken], taken // (slots.size // TABLES)]
    words = hashed(network.params["output"], tables)[0]
    wrong = np.mean(np.bitwise_count(words ^ tables["signs"])) / 64
    if not np.array_equal(places, taken) or wrong > 1e-5:
        sys.exit("the tables are not those of the rows")


# --------------------------------------------------------------------------------------- times


def step_times(sizes: tuple[int, ...], rounds: int) -> dict[str, list[float]]:
    """Medians of a step by kind, for each size. A round is ten steps of each, but one of the dense
    ones; the first half of the rounds, in which models are compiled, does not count."""
    print(f"\nms a step{'':9}" + "".join([f"{size:>10,}" for size in sizes]) + "   last over first")
    problems, found = [families(size) for size in sizes], {}
    networks = [Network(kind, each, 10 * rounds) for kind in KINDS for each in problems]
    for _ in range(rounds):
        for network in networks:
            for _ in range(1 if network.kind == "dense" else 10):
                network.step()
    for kind in KINDS:
        times = [each.seconds[len(each.seconds) // 2 :] for each in networks if each.kind == kind]
        found[kind] = [1e3 * float(np.median(each)) for each in times]
        cells = "".join([f"{each:10.1f}" for each in found[kind]])
        print(f"{kind:18}{cells}{found[kind][-1] / found[kind][0]:18.2f}")
    return found


def draw(name: str, told: dict[str, list[Told]], times: dict[str, list[float]], path: str) -> None:
    from bokeh.layouts import row
    from bokeh.plotting import figure, save
    from bokeh.resources import INLINE

    sizes = SIZES[: len(times["dense"])]
    axes = {"width": 560, "height": 420, "toolbar_location": None}
    left = figure(title=f"Precision@1, {name}", y_range=(0.0, 1.0), **axes)
    left.xaxis.axis_label, left.yaxis.axis_label = "seconds of training", "precision@1"
    right = figure(title="Time of a step", x_axis_type="log", y_axis_type="log", **axes)
    right.xaxis.axis_label, right.yaxis.axis_label = "output neurons", "milliseconds"
    right.yaxis.ticker = [1, 2, 5, 10, 20, 50, 100, 200, 500]
    right.xaxis.ticker, right.xaxis.minor_tick_line_color = sizes, None
    right.xaxis.major_label_overrides = {size: f"{size:,}" for size in sizes}
    for kind, colour in zip(KINDS, ("#1b9e77", "#d95f02", "#7570b3"), strict=True):
        precisions = [(each.seconds, each.precisions[0]) for each in told[kind]]
        for plot, points in ((left, precisions), (right, zip(sizes, times[kind], strict=True))):
            x, y = zip(*points, strict=True)
            plot.line(x, y, color=colour, line_width=2, legend_label=kind)
            plot.scatter(x, y, color=colour, size=7, legend_label=kind)
    left.legend.location, right.legend.location = "bottom_right", "center_right"
    save(row(left, right), path, INLINE, "A sub-linear network")
    print(f"written: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small problems, fewer steps")
    parser.add_argument("--dense", action="store_true", help="no limit for the dense network")
    parser.add_argument("--plot", metavar="FILE", help="an HTML file for precision and time")
    arguments = parser.parse_args()
    runs = [(digits(), 400, 0.95), (families(SIZES[0]), 2000, 0.8), (families(200_000), 3000, 0.6)]
    if arguments.quick:
        runs = [(digits(), 100, 0.90), (families(4096), 200, 0.65)]

    require_same_update(runs[1][0])
    found = {}
    for problem, steps, _ in runs:
        is_limited = problem.neurons > SIZES[-1] and not arguments.dense
        found[problem.name] = compare(problem, steps, is_limited)
    print_precisions(found)
    times = step_times(SIZES[:2] if arguments.quick else SIZES, 6 if arguments.quick else 30)
    if arguments.plot:
        draw(problem.name, found[problem.name], times, arguments.plot)
    for problem, _, wanted in runs:
        precision = found[problem.name]["sub-linear"][-1].precisions[0]
        if precision < wanted:
            sys.exit(f"{problem.name}: the precision is {precision:.3f}; {wanted} was expected")


if __name__ == "__main__":
    main()
