"""Models that a list of calls cannot repeat, or not always: right, or a clear error.

Each is called CALLS times with other data. Values and gradients are compared, bit by bit, with
those of a tape that is made anew.
"""

import collections
import dataclasses
import gc
import itertools
import weakref

import dask
import numpy as np
import pytest
from captured_calls import derivatives, is_same, model_of, overwrite
from fuzz_references import KINDS, Names
from hostile_arguments import ARGUMENTS, ERRORS, RESULTS, Halved, Slotted, Thing
from hostile_models import (
    BRANCHES,
    CALLS,
    ERROR,
    IN_PLACE,
    LATE,
    NUMBERS,
    PLAIN,
    PROGRAM,
    SHAPES,
    TAPE,
)
from hostile_states import AT_EACH_CALL, SEEN, UNSEEN
from lengths import in_short

import daskgrad as dg
from daskgrad.autodiff.programs import backend
from daskgrad.autodiff.programs.boxes import Unrecordable

TABLES = (BRANCHES, NUMBERS, PLAIN, IN_PLACE, SHAPES, ERRORS, RESULTS, ARGUMENTS)
TABLES += (SEEN, UNSEEN, AT_EACH_CALL)
MODELS = {name: row for table in TABLES for name, row in table.items()}
SHORT = [*ERRORS, *SEEN]  # whose mistakes are not found at the first comparison
X = np.linspace(-1.0, 1.0, 5)


@pytest.fixture(autouse=True)
def in_line():
    with dask.config.set({"scheduler": dask.get, "daskgrad.inline.seconds": 60}):  # no objectives
        yield


def differences(name, choice):
    """Whether each call differed from the tape; at the end "error" if one was an error."""
    model, becomes, arguments, before = MODELS[name]
    compiled, plain = model_of(model, choice), model_of(model, False)
    random = np.random.default_rng(5)
    for n in range(2 * CALLS if becomes is ERROR else CALLS):  # until it is compared again
        given = arguments(n, random)
        before(n)
        expected = derivatives(plain, given)
        before(n)
        try:
            found = derivatives(compiled, given)
        except dg.NondeterministicModelError:
            yield "error"
            return
        yield not is_same(found, expected)
        overwrite(found)


def became(model, choice):
    entries = backend.prepare(model, choice is True).programs._entries.values()
    return PROGRAM if any([entry.ways for entry in entries]) else TAPE


@pytest.mark.filterwarnings("ignore")
@in_short("name", MODELS, *SHORT)
def test_a_compiled_model_is_right_or_an_error(name):
    expected = MODELS[name].becomes
    differ = list(differences(name, True))
    if expected is ERROR:
        assert differ[-1] == "error"
    else:
        assert not any(differ)
        assert became(MODELS[name].model, True) is expected


@pytest.mark.filterwarnings("ignore")
@in_short("name", MODELS, *UNSEEN)
def test_a_model_that_is_compiled_by_itself_is_right(name):
    assert not any(differences(name, "auto"))
    if MODELS[name].becomes is not PROGRAM:
        assert became(MODELS[name].model, "auto") is TAPE


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.changes])
def test_a_change_of_what_a_model_refers_to_is_seen(name):
    kind = KINDS[name]
    places = itertools.product(range(len(kind.uses)), range(len(kind.changes)), (True, "auto"))
    for use, change, choice in places:
        names = Names(np.random.default_rng(1))
        uses, changes = names.define(kind, "thing", "1.0")
        names.execute(f"def model(x): return np.sum(np.sin(x)) * {uses[use]}")
        model = names.globals["model"]
        compiled, plain = (dg.value_and_grad(dg.delayed(model, compile=c)) for c in (choice, False))
        for n in range(14):
            if n in (5, 11):
                names.execute(changes[change])
            assert is_same(compiled(X + n), plain(X + n)), (uses[use], changes[change])
        assert choice == "auto" or became(model, choice) is PROGRAM, uses[use]


def test_names_are_given_once():
    assert len(MODELS) == sum(map(len, TABLES))


# ----------------------------------------------------------------------------- other ways to call


def gradients_in_sums(model, items):
    for choice in (True, False):
        compiled = dg.delayed(model, compile=choice)
        gradient = dg.value_and_grad(lambda x, model=compiled: dg.map_sum(model, items, x))
        yield [gradient(X) for _ in range(3)]  # the items of a block are looked up before it runs


TERMS = {
    "objects": (
        lambda item, x: np.sum(x) * item.scale(x[0]),
        [*map(Thing, np.linspace(1.0, 2.0, LATE)), Slotted(2.0), Thing(X), Thing(X, late=1)],
    ),
    "objects of two classes": (
        lambda item, x: np.sum(x) * item.scale(x[0]),
        [Thing(1.0)] * LATE + [Halved(1.0)] * 2,
    ),
    "unsorted keys": (
        lambda item, x: np.sum(x) * item["b"] + item["a"],
        [{"b": n, "a": 2.0 * n} for n in np.linspace(1.0, 2.0, LATE)],
    ),
    "objects in containers": (
        lambda item, x: np.sum(x) * item["a"][0].scale(item["b"]),
        [{"a": (Thing(n),), "b": 2.0} for n in range(LATE)] + [{"b": 3.0, "a": [Thing(2.0)]}] * 2,
    ),
    "integers that are looked at": (
        lambda item, x: sum([np.sum(x**k) for k in range(item[0])], x[0]) * item[1],
        [(n % 3, float(n)) for n in np.arange(LATE)] + [(np.int64(7), 2.0)] * 2,
    ),
    "the order of a dict": (
        lambda item, x: np.sum(x) * next(iter(item.values())),
        [{"a": 2.0, "b": 3.0}] * LATE + [{"b": 3.0, "a": 2.0}] * 2,
    ),
    "a branch": (
        lambda item, x: np.sum(x * item) if item > 0.0 else np.sum(x) ** 2,
        [1.0] * LATE + [-1.0] * 2,
    ),
    "an error that is caught": (
        lambda item, x: ERRORS["an error is caught late"].model(x, item),
        [np.eye(2)] * LATE + [-np.eye(2)] * 2,
    ),
    "a quotient that is not used": (
        lambda item, x: ERRORS["a quotient that is not used"].model(x, item),
        [2.0] * LATE + [0.0] * 2,
    ),
    "warnings are errors": (
        lambda item, x: ERRORS["warnings are errors"].model(x, item),
        [np.ones(3)] * LATE + [np.zeros(3)] * 2,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_sums_are_right(name):
    found, expected = gradients_in_sums(*TERMS[name])
    assert is_same(found, expected)


def test_what_is_kept_of_a_recording_is_of_no_use():
    """A box that the model has put somewhere is an error when it is read, never a number."""
    kept = collections.UserList([0.0])  # which nobody watches

    def model(x, data):
        kept[0] = np.mean(data)
        return np.sum(x) * kept[0]

    gradient = dg.value_and_grad(dg.delayed(model, compile=True))
    while type(kept[0]) in (float, np.float64):  # until it is recorded
        gradient(X, X + 2.0)
    with pytest.raises(Unrecordable, match="the model calls __float__"):
        float(kept[0])


# ------------------------------------------------------------------------- what errors say


def test_a_variable_that_is_not_assigned_yet():
    def model(x):
        return np.sum(x) if x[0] < 1e9 else later

    gradient = dg.value_and_grad(dg.delayed(model, compile=True))
    assert {gradient(X)[0] for _ in range(9)} == {np.sum(X)}
    later = 1.0


def test_a_recursive_function_is_not_kept_alive():
    def make():
        def model(x, count=3):
            return model(2.0 * x, count - 1) if count else np.sum(x)

        gradient = dg.value_and_grad(dg.delayed(model, compile=True))
        for _ in range(8):
            gradient(X)
        return weakref.ref(model)

    gone = make()
    gc.collect()
    assert gone() is None


def test_the_name_of_a_recursive_function_is_bound_to_another():
    text = "def model(x, n=2): return model(2.0 * x, n - 1) if n else np.sum(x)"
    exec(text, names := {"np": np, "__name__": "names"})
    gradients = [
        dg.value_and_grad(dg.delayed(names["model"], compile=choice)) for choice in (True, "auto")
    ]
    for _ in range(20):
        assert {gradient(X + 1.0)[0] for gradient in gradients} == {20.0}
    names["model"] = lambda x, n: 3.0 * np.sum(x)
    assert {gradient(X + 1.0)[0] for gradient in gradients} == {30.0}


@dataclasses.dataclass(frozen=True)
class Scaled:
    name: str
    scale: float = dataclasses.field(compare=False)

    def __call__(self, x):
        return np.sum(x) * self.scale


def test_equal_models_have_programs_of_their_own():
    one, other = (dg.value_and_grad(dg.delayed(Scaled("a", n), compile=True)) for n in (1.0, 2.0))
    for _ in range(9):
        one(X + 1.0)
    assert other(X + 1.0)[0] == 2.0 * one(X + 1.0)[0]


def test_only_models_of_autograd_are_compiled():
    with pytest.raises(ValueError, match="compile=True is for models of backend 'autograd'; fou"):
        dg.delayed(np.sum, backend="registered", compile=True)
