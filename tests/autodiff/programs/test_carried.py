"""Carried arguments: what a model does not read has no own programs, and no read is missed."""

import array
import collections
import dataclasses
import datetime
import enum
import functools
import itertools
import math
import operator
import pathlib
import sys
import types
import uuid
import warnings
from typing import NamedTuple

import dask
import numpy as np
import pytest
from recorded import entries_of

import daskgrad as dg
from daskgrad.autodiff.programs import carried, store, whole
from daskgrad.autodiff.programs.signatures import are_same

COUNT = 60
RANDOM = np.random.default_rng(0)
CURVES = [(np.linspace(0.0, 2.0, 6), y) for y in RANDOM.normal(size=(COUNT, 6))]
NAMES = [f"{'north' if n % 17 == 12 else 'south'}-{n % 5}" for n in range(COUNT)]  # rare, and late
X = np.array([1.5, 0.9])
START = datetime.date(2020, 1, 1)


class Region(enum.Enum):
    NORTH = "north"
    SOUTH = "south"

    @classmethod
    def of(cls, name):
        return cls(name[:5])


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(str):
    """A string of a class of its own."""

    __slots__ = ("weight",)


class Tag:
    """An object of C's kind: programs do not take it apart."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):  # so it is no plain class
        raise AttributeError(name)

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return hash(self.name)


@dataclasses.dataclass
class Station:
    number: int
    name: str
    founded: datetime.date
    region: Region
    t: np.ndarray
    y: np.ndarray


class Row(NamedTuple):
    name: str
    founded: datetime.date
    t: np.ndarray
    y: np.ndarray


pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def in_line(monkeypatch):
    """Whole objectives get programs."""
    made, find = [], whole.Whole._keep
    monkeypatch.setattr(whole.Whole, "_keep", lambda *args: made.append(1) or find(*args))
    with dask.config.set({"daskgrad.inline.seconds": 60, "scheduler": None}):
        yield made


def misfit(t, y, x):
    return np.sum((y - x[0] * np.exp(-x[1] * t)) ** 2)


def of_tuple(item, x):
    return misfit(item[1], item[2], x)


def of_object(item, x):
    return misfit(item.t, item.y, x)


def of_dict(item, x):
    if len(item["t"]) != len(item["y"]):
        raise ValueError(f"item {item['id']} of {item['name']} has other times")
    return misfit(item["t"], item["y"], x)


def by_recursion(item, x):
    def after(count):
        return misfit(item[1], item[2], x) if count == 0 else after(count - 1)

    return after(2)


def of_array(item, x):
    return misfit(item[1], item[2], np.tile(np.array([x[0], x[1]]), 2))


def by_loss(item, x):
    residuals = item["y"] - x[0] * np.exp(-x[1] * item["t"])
    if item["loss"] == "huber":
        return np.sum(np.sqrt(1.0 + residuals**2) - 1.0)
    return np.sum(residuals**2)


def fields(item, x):
    _, curve = item
    return misfit(*curve, x)


def tagged(tags):
    return [(tag, *curve) for tag, curve in zip(tags, CURVES, strict=True)]


TIMES, VALUES = zip(*CURVES, strict=True)
IDS = [f"id{n}" for n in range(COUNT)]
DAYS = [START + datetime.timedelta(days=n) for n in range(COUNT)]
REGIONS = [Region.of(name) for name in NAMES]
UNREAD = {  # models, items, and the number of programs
    "names": (of_tuple, tagged(IDS), 1),
    "bytes": (of_tuple, tagged([name.encode() for name in IDS]), 1),
    "where a library tries something": (of_array, tagged(IDS), 1),
    "a function that calls itself": (by_recursion, tagged(IDS), 1),
    "strings of NumPy's": (of_tuple, tagged([*np.array(IDS)]), 1),
    "strings of another class": (of_tuple, tagged(list(map(Name, IDS))), 1),
    "dates": (of_tuple, tagged(DAYS), 1),
    "times": (of_tuple, tagged([datetime.datetime(2020, 1, 1 + n % 28) for n in range(COUNT)]), 1),
    "enums": (of_tuple, tagged(REGIONS), 1),
    "enums of integers": (of_tuple, tagged([Level(1 + n % 2) for n in range(COUNT)]), 1),
    "UUIDs": (of_tuple, tagged([uuid.UUID(int=n) for n in range(COUNT)]), 1),
    "paths": (of_tuple, tagged([pathlib.Path("data", *IDS[: n % 3]) for n in range(COUNT)]), 1),
    "labels": (of_tuple, tagged([np.array(["a", f"b{n}"]) for n in range(COUNT)]), 1),
    "objects": (of_tuple, tagged([object() for _ in range(COUNT)]), 1),
    "dicts": (
        of_dict,
        [
            {"id": number, "name": f"a {name}", "t": t, "y": y}
            for number, (name, (t, y)) in enumerate(zip(IDS, CURVES, strict=True))
        ],
        1,
    ),
    "dataclasses": (
        of_object,
        list(map(Station, range(COUNT), IDS, DAYS, REGIONS, TIMES, VALUES)),
        1,
    ),
    "rows": (of_object, list(map(Row, IDS, DAYS, TIMES, VALUES)), 1),
    "numbered": (fields, list(enumerate(CURVES)), 1),
    "integers": (of_tuple, tagged(range(COUNT)), 1),
    "integers of a field": (fields, dg.zip(range(COUNT), CURVES), 1),
    "fields": (fields, dg.zip(IDS, CURVES), 1),
    "a loss by its name": (
        by_loss,
        [
            {"id": name, "loss": ("squares", "huber")[n % 2], "t": t, "y": y}
            for n, (name, (t, y)) in enumerate(zip(IDS, CURVES, strict=True))
        ],
        2,
    ),
}


def programs_of(model):
    """The programs of a model, and its batches."""
    entries = entries_of(model)
    ways = [way for entry in entries for way in entry.ways]
    return ways, [batch for entry in entries for batch in entry.batches.values() if batch]


def evaluated(model, items, count=6):
    """The last value and gradient of a sum, whose models' programs give the tape's bits."""
    summed = dg.value_and_grad(lambda x: dg.map_sum(model, items, x, grainsize=COUNT))
    by_tape = dg.delayed(model, compile=False)
    expected = dg.value_and_grad(lambda x: dg.map_sum(by_tape, items, x, grainsize=COUNT))
    for number in range(count):
        x = X + 0.01 * number
        result = summed(x)
        assert are_same(result, expected(x))
    return result


@pytest.mark.parametrize("name", UNREAD)
def test_unread_arguments_have_one_program(name):
    model, items, count = UNREAD[name]
    model = renewed(model)
    evaluated(dg.delayed(model, compile=True), items)
    ways, batches = programs_of(model)
    assert (len(ways), len(batches)) == (count, count)


def renewed(fun):
    """A model that no other test has called."""
    code = fun.__code__.replace(co_name=f"{fun.__name__}_{next(NUMBERS)}")
    return types.FunctionType(code, fun.__globals__, code.co_name)


NUMBERS = itertools.count()


def test_tangents_of_named_items_have_one_program(monkeypatch):
    made, make_way = [], store.make_way
    monkeypatch.setattr(store, "make_way", lambda *args: made.append(1) or make_way(*args))
    model, items = renewed(of_tuple), tagged(IDS)
    by_tape = dg.delayed(of_tuple, compile=False)
    for _ in range(6):
        product = dg.hvp(lambda x: dg.map_sum(model, items, x), (X,), (X,))
        expected = dg.hvp(lambda x: dg.map_sum(by_tape, items, x), (X,), (X,))
        np.testing.assert_array_equal(product, expected)
    assert made == [1]


# ------------------------------------------------------------------------------------ reads


def weighted(weight_of):
    """A model whose items have weights by their names."""

    def term(item, x):
        name, t, y = item
        return weight_of(name) * misfit(t, y, x)

    return term


WEIGHTS = {f"north-{n}": 2.0 for n in range(5)}
NORTHERN = frozenset(WEIGHTS)
ALL_NORTHERN = " ".join(WEIGHTS)
cached = functools.lru_cache(lambda name: 2.0 if name < "o" else 1.0)


def matched(name):
    match name:
        case "north-0" | "north-1" | "north-2" | "north-3" | "north-4":
            return 2.0
        case _:
            return 1.0


def in_text(name):
    try:
        return 2.0 if name in ALL_NORTHERN else 1.0
    except TypeError:
        return 1.0


def joined(name):
    try:
        return 2.0 if "-".join([name, "a"]) < "o" else 1.0
    except TypeError:
        return 1.0


def as_integer(name):
    try:
        int(name)
    except TypeError:
        return 1.0
    except ValueError:
        return 2.0 if len(name) > 6 else 1.5
    return 3.0


def by_method_of_text(name):
    try:
        return 2.0 if "north-0 north-1".startswith(name) else 1.0
    except (TypeError, ValueError):
        return 1.0


def found(name):
    try:
        return WEIGHTS[name]
    except KeyError:
        return 1.0


def any_error(name):
    try:
        return 2.0 if name.startswith("north") else 1.0
    except:  # noqa: E722
        return 1.0


def equal_or_any_error(name):
    try:
        return 2.0 if name == "north-2" else 1.0
    except:  # noqa: E722
        return 1.0


def finally_(name):
    weight = 1.0
    try:
        weight = 2.0 if name in ALL_NORTHERN else 1.0
    finally:
        return weight  # noqa: B012


def in_order(name):
    return 1.0 if sorted([name, "o"])[0] == "o" else 2.0


def by_default(name):
    def weight(key=name):
        return 2.0 if key == "north-2" else 1.0

    return weight()


def of_keyword(name):
    def weight(**names):
        return 2.0 if "north-2" in names else 1.0

    try:
        return weight(**{name: 1})
    except TypeError:
        return 1.0


def by_reduction(name):
    try:
        return 2.0 if functools.reduce(str.__add__, ["", name]) < "o" else 1.0
    except TypeError:
        return 1.0


def by_generator(name):
    def parts():
        try:
            yield 2.0 if name in ALL_NORTHERN else 1.0
        except TypeError:
            yield 1.0

    return next(parts())


READS = {
    "equal": lambda name: 2.0 if name == "north-2" else 1.0,
    "not equal": lambda name: 2.0 if "north-2" != name else 1.0,
    "before": lambda name: 2.0 if name < "o" else 1.0,
    "in a text": in_text,
    "in a text, finally": finally_,
    "in a tuple": lambda name: 2.0 if name in ("north-1", "north-2") else 1.0,
    "in a list": lambda name: [*WEIGHTS, name].index(name) + 1.0,
    "in a set": lambda name: 2.0 if name in NORTHERN else 1.0,
    "in a set of its own": lambda name: float(len({name, "north-2"})),
    "in a dict": lambda name: WEIGHTS.get(name, 1.0),
    "in a dict, or not": found,
    "in a dict of its own": lambda name: {name: 3.0}.get("north-2", 1.0),
    "counted": lambda name: collections.Counter([name])["north-2"] + 1.0,
    "joined": joined,
    "added": lambda name: float(len("a" + name)) + (name + "a" < "o"),
    "times": lambda name: float(len(name * 2)) + (name * 2 < "o"),
    "an integer": as_integer,
    "a number within": lambda name: float(name[-1]),
    "sliced": lambda name: 2.0 if name[:5] == "north" else 1.0,
    "a text's method": by_method_of_text,
    "its own method": lambda name: 2.0 if name.startswith("n") else 1.0,
    "any error": any_error,
    "equal, or any error": equal_or_any_error,
    "formatted": lambda name: 2.0 if f"{name}!" < "o" else 1.0,
    "formatted by %": lambda name: 2.0 if "%s" % name < "o" else 1.0,  # noqa: UP031
    "shown": lambda name: 2.0 if repr(name) < "'o" else 1.0,
    "or": lambda name: 2.0 if (name or "x") < "o" else 1.0,
    "not": lambda name: 1.0 if not name else 2.0,
    "its length": lambda name: float(len(name)),
    "its characters": lambda name: float(sum([c == "o" for c in name])),
    "a pair": lambda name: 2.0 if (name, 1) == ("north-2", 1) else 1.0,
    "ordered": in_order,
    "the larger one": lambda name: 2.0 if max(name, "o") == "o" else 1.0,
    "hashed": lambda name: 2.0 if {("north-2",): 1}.get((name,)) else 1.0,
    "cached": lambda name: cached(name),
    "matched": matched,
    "isinstance": lambda name: 2.0 if isinstance(name, str) else 1.0,
    "a default": by_default,
    "a keyword": of_keyword,
    "reduced": by_reduction,
    "in a generator": by_generator,
    "by an operator": lambda name: 2.0 if operator.eq(name, "north-2") else 1.0,
    "an array of it": lambda name: 2.0 if np.array([name])[0] < "o" else 1.0,
    "an array's name": lambda name: float(np.zeros(1, [("a", "f8")]).dtype.names == (name,)) + 1.0,
    "grouped": lambda name: float(len([*itertools.groupby([name, "north-2"])])),
    "mapped": lambda name: 2.0 if [*map(str.lower, [name])] == ["north-2"] else 1.0,
}


@pytest.mark.parametrize("choice", [True, "auto"])
@pytest.mark.parametrize("name", READS)
def test_no_read_is_missed(name, choice):
    model = weighted(READS[name])
    items = tagged(NAMES)
    value, _ = evaluated(dg.delayed(model, compile=choice), items)
    expected = sum([model(item, X + 0.05) for item in items])
    assert math.isclose(value, expected, rel_tol=1e-12)


def is_member(region):
    return 2.0 if region is Region.NORTH else 1.0


def number_or_error(number):
    try:
        return 2.0 if "abcdefghijkl".startswith("a" * number) else 1.0
    except:  # noqa: E722
        return 1.0


NUMBERED = {
    "times": lambda n: 2.0 * n,
    "a product of arrays": lambda n: np.sum(np.ones(3) * n),
    "a large product": lambda n: float((n * 2**62 + 2**65) % 97),
    "a power": lambda n: 1.01**n,
    "a rest": lambda n: 1.0 + n % 2,
    "both": lambda n: float(sum(divmod(n, 7))),
    "less": lambda n: 2.0 if n < 30 else 1.0,
    "equal": lambda n: 2.0 if n == 31 else 1.0,
    "if": lambda n: 2.0 if n else 1.0,
    "an index": lambda n: ROW[n],
    "an index of a list": lambda n: ROW.tolist()[n],
    "a slice": lambda n: np.sum(ROW[:n]),
    "a range": lambda n: float(len(range(n))),
    "a shape": lambda n: float(np.zeros(n).size),
    "a repeated list": lambda n: float(len([1.0] * n)),
    "a key": lambda n: {31: 2.0}.get(n, 1.0),
    "in a set": lambda n: 2.0 if n in {31, 32} else 1.0,
    "in a range": lambda n: 2.0 if n in range(20, 31) else 1.0,
    "in a tuple": lambda n: 2.0 if n in (31, 32) else 1.0,
    "a float": lambda n: float(n),
    "a root": lambda n: math.sqrt(n),
    "binomials": lambda n: float(math.comb(5, n)),
    "bits": lambda n: float(n.bit_length() + (~n & 3)),
    "its digits": lambda n: float(len(f"{n}")),
    "rounded": lambda n: round(1.23456, n),
    "the larger one": lambda n: float(max(n, 30)),
    "a sum": lambda n: float(sum([n, 1])),
    "a sum of no others": lambda n: float(sum([], n)),
    "its negative": lambda n: float(abs(-n)),
    "from a number on": lambda n: float(next(iter(enumerate([1.0], n)))[0]),
    "counted from it": lambda n: float(next(itertools.count(n))),
    "an array": lambda n: np.array([n, 1.0])[0],
    "filled": lambda n: np.full(2, n)[0] * 1.0,
    "isinstance": lambda n: 2.0 if isinstance(n, int) else 1.0,
    "or any error": number_or_error,
}
ROW = RANDOM.normal(size=COUNT)


def by_option(name):
    """An option, which NumPy tries in its own frames."""
    try:
        return float(np.sum(np.ones(2), axis=name if name == "north-2" else None))
    except TypeError:
        return 1.5


def by_callback(name):
    def weight(_):
        return "".join([name])

    try:
        return float(np.apply_along_axis(lambda row: len(weight(row)), 0, np.ones(2)))
    except TypeError:
        return 7.0


def by_key(name):
    """NumPy's code joins and sorts what it got in a list."""
    try:
        return float(np.rec.fromarrays([np.ones(1)], names=[name])[0][0]) + len([name])
    except TypeError:
        return 2.0


def by_pattern(thing):
    match thing:
        case [_]:
            return 2.0
        case {"a": 1}:
            return 3.0
        case _:
            return 1.0


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # SyntaxWarning
    same_text = eval('lambda name: 2.0 if name is "north-2" else 1.0')
TEXT_OF_CODE = next(text for text in same_text.__code__.co_consts if type(text) is str)
HOUR = datetime.timedelta(hours=1)
ZONES = datetime.UTC, datetime.timezone(HOUR)
NOON = datetime.datetime(2020, 6, 1, 12, tzinfo=datetime.UTC)
ZONED = [NOON.astimezone(ZONES[n % 2]) for n in range(COUNT)]  # equal
FOLDED = [datetime.datetime(2020, 6, 1, fold=n % 2) for n in range(COUNT)]  # equal
OTHERS = {
    "bytes": ([name.encode() for name in NAMES], lambda name: 2.0 if name in b"north-2" else 1.0),
    "bytes, read in C": (
        [name.encode() for name in NAMES],
        lambda name: float(int.from_bytes(name[:1], "big")),
    ),
    "another class's": (list(map(Name, NAMES)), in_text),
    "another class's, joined": (list(map(Name, NAMES)), joined),
    "an enum's value": (REGIONS, lambda region: 2.0 if region.value == "north" else 1.0),
    "an enum": (REGIONS, lambda region: 2.0 if region == Region.NORTH else 1.0),
    "the same enum": (REGIONS, is_member),
    "one of some enums": (REGIONS, lambda region: 2.0 if region in (Region.NORTH,) else 1.0),
    "an enum's number": ([Level(1 + n % 2) for n in range(COUNT)], lambda n: 2.0 * n),
    "a date": (DAYS, lambda day: float((day - START).days)),
    "a part of a date": (DAYS, lambda day: 2.0 if day.month == 2 else 1.0),
    "dates of two zones": (ZONED, lambda date: float(date.hour)),
    "dates of two folds": (FOLDED, lambda date: float(date.fold)),
    "a later date": (DAYS, lambda day: 2.0 if day > START else 1.0),
    "the number in a UUID": ([uuid.UUID(int=n) for n in range(COUNT)], lambda key: float(key.int)),
    "a path's name": (list(map(pathlib.Path, NAMES)), lambda path: float(path.name < "o")),
    "labels": ([np.array([name]) for name in NAMES], lambda names: float(names[0] < "o")),
    "an object": (list(map(Tag, NAMES)), lambda tag: float(tag.name < "o")),
    "an equal object": (list(map(Tag, NAMES)), lambda tag: float(tag == Tag("north-2"))),
    "an object's key": (list(map(Tag, NAMES)), lambda tag: float(tag in {Tag("north-2")})),
    "a sequence": (
        [array.array("d", [1.0] * (1 + n % 2)) for n in range(COUNT)],
        by_pattern,
    ),
    "a mapping": ([types.MappingProxyType({"a": n % 2}) for n in range(COUNT)], by_pattern),
    "text or bytes": (
        [name if n % 3 else name.encode() for n, name in enumerate(NAMES)],
        lambda name: 2.0 if isinstance(name, bytes) else 1.0,
    ),
    "the same text": ([TEXT_OF_CODE if n % 17 == 12 else "a" for n in range(COUNT)], same_text),
    "ellipsis": ([[..., "a"][n % 2] for n in range(COUNT)], lambda mode: float(mode is ...)),
    "a missing name": (
        [[None, "a"][n % 2] for n in range(COUNT)],
        lambda name: 2.0 if name is None else 1.0,
    ),
    "an option": (NAMES, by_option),
    "a callback": (NAMES, by_callback),
    "names of fields": (NAMES, by_key),
    "a list of names": ([[name, "a"] for name in NAMES], lambda names: float("north-2" in names)),
    "a function's name": ([np.sin, np.cos] * (COUNT // 2), lambda fun: float(fun(1.0))),
}


@pytest.mark.parametrize("choice", [True, "auto"])
@pytest.mark.parametrize("name", NUMBERED)
def test_no_use_of_an_integer_is_missed(name, choice):
    model = weighted(NUMBERED[name])
    items = tagged(range(COUNT))
    value, _ = evaluated(dg.delayed(model, compile=choice), items)
    expected = sum([model(item, X + 0.05) for item in items])
    assert math.isclose(value, expected, rel_tol=1e-12)


@pytest.mark.parametrize("choice", [True, "auto"])
@pytest.mark.parametrize("name", OTHERS)
def test_no_read_of_others_is_missed(name, choice):
    tags, weight_of = OTHERS[name]
    model = weighted(weight_of)
    items = tagged(tags)
    value, _ = evaluated(dg.delayed(model, compile=choice), items)
    expected = sum([model(item, X + 0.05) for item in items])
    assert math.isclose(value, expected, rel_tol=1e-12)


def test_an_objective_may_call_models_that_ask_for_identities(in_line):
    """For which somebody vouches."""
    vouched = dg.delayed(lambda x, name: np.sum(x**2) * same_text(name), compile=True)
    objective = dg.value_and_grad(lambda x, name: vouched(x, name))
    for number in range(80):
        is_same = number > 40 and number % 17 == 4
        value, gradient = objective(X, TEXT_OF_CODE if is_same else "south")
        assert value == (1.0 + is_same) * np.sum(X**2)
        np.testing.assert_array_equal(gradient, (1.0 + is_same) * 2.0 * X)
    assert len(in_line) == 2


@dg.custom_vjp
def louder(z, name):
    """Reads a name where it is in the north of the data."""
    return z * in_text(name) if z > 12.0 else z


louder.defvjp(
    lambda z, name: (louder(z, name), in_text(name) if z > 12.0 else 1.0),
    lambda factor, g: (g * factor, None),
)


def test_a_function_with_rules_may_read_a_name_later():
    """It is one call of a program, which takes no branch of it for granted."""
    model = dg.delayed(lambda item, x: louder(misfit(item[1], item[2], x), item[0]), compile=True)
    sizes = [misfit(*curve, X) > 12.0 for curve in CURVES]
    assert 5 < sum(sizes) < COUNT - 5
    evaluated(model, tagged(NAMES))


def test_an_object_that_a_run_keeps_counts_as_read():
    reads, kept = carried.Reads({0: str, 3: str}), []
    assert reads.of(lambda: 1.0) == 1.0
    with pytest.raises(carried.Read) as caught:
        reads.of(lambda: kept.append(reads.objects[1]))
    assert caught.value.places == (3,)


def by_rare_branch(item, x):
    name, t, y = item
    if y[0] > 1.0:
        return misfit(t, y, x) * (2.0 if name.startswith("north") else 1.0)
    return misfit(t, y, x)


def test_a_read_on_a_rare_branch_leaves_the_others_quick():
    model = renewed(by_rare_branch)
    evaluated(dg.delayed(model, compile=True), tagged(NAMES))
    entry = entries_of(model)[0]
    assert entry.ways
    assert entry.reads
    assert any(entry.batches.values())


def test_a_read_string_has_a_program_for_each_value():
    model = weighted(READS["its own method"])
    evaluated(dg.delayed(model, compile=True), tagged(NAMES))
    entries = entries_of(model)
    assert [len(entry.ways) for entry in entries] == [0] + [1] * len(set(NAMES))


@pytest.mark.parametrize("kept", [lambda name: name, lambda name: [name], lambda name: {"a": name}])
def test_a_name_that_a_model_returns_is_its_own(kept):
    model = dg.delayed(lambda name, x: (np.sum(x**2), kept(name)))
    for number in range(40):
        (_, value), pull = dg.vjp(lambda x, name=f"name {number % 3}": model(name, x), X)
        assert value == kept(f"name {number % 3}")
        np.testing.assert_array_equal(pull((1.0, kept(None)))[0], 2.0 * X)


def test_an_unread_argument_of_an_objective_has_one_program(in_line):
    model = dg.delayed(lambda x, name: np.sum(x**2))
    objective = dg.value_and_grad(lambda x, name, label: model(x, name) + 0.0)
    for number in range(80):
        objective(X, IDS[number % COUNT], DAYS[number % COUNT])
    assert len(in_line) == 1


@pytest.mark.parametrize("name", ["equal", "in a text", "in a dict", "its length"])
def test_whole_objectives(name, in_line):
    """They are arguments, and no items."""
    weight_of = READS[name]
    model = dg.delayed(lambda x, name: np.sum(x**2) * weight_of(name))
    objective = dg.value_and_grad(lambda x, name, label: model(x, name) + 0.0 * model(x, name))
    for number in range(180):
        tag = NAMES[number // 3]
        value, gradient = objective(X, tag, IDS[number % COUNT])
        assert value == np.sum(X**2) * weight_of(tag)
        np.testing.assert_array_equal(gradient, 2.0 * X * weight_of(tag))
    assert len(in_line) > 1


def test_a_library_that_tries_something_of_its_own_reads_nothing():
    (name,) = carried.Reads({0: np.dtype}).objects
    apart = [1.0, "a", np.ones(2), {"a": [np.float32(1.0)]}, (None, np.exp), np.dtype(float)]
    assert carried.is_apart(apart)
    objects = np.array([None, 1.0], object)
    assert carried.is_apart(objects)
    objects[0] = name
    records = np.array([(None,)], [("a", object)])
    records["a"][0] = name
    within = [name, [name], {"a": (name,)}, [[name]], objects]
    for thing in [*within, records, lambda: name, object(), [[[[[1.0]]]]]]:
        assert not carried.is_apart([thing])


def test_a_library_that_catches_the_error_of_a_read():
    space = {"__name__": "numpy.joined"}
    exec("def join(x):\n try: return ''.join([x])\n except TypeError: return None", space)
    reads = carried.Reads({0: str})
    assert reads.of(lambda: space["join"](3)) is None
    with pytest.raises(carried.Read):
        reads.of(lambda: space["join"](reads.objects[0]))


def test_under_a_debugger_all_names_count_as_read():
    model = renewed(of_tuple)
    traced = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        evaluated(dg.delayed(model, compile=True), tagged(NAMES))
    finally:
        sys.settrace(traced)
    assert entries_of(model)[0].reads


def test_the_tracer_is_gone_after_a_recording():
    evaluated(weighted(in_text), tagged(NAMES))
    assert sys.gettrace() is None


UNSEEN = "class doc dict init init_subclass module mro new slots subclasshook weakref annotations"
UNSEEN += " getattribute getstate match_args static_attributes firstlineno"


def test_the_object_in_place_of_an_argument_has_all_methods_of_python():
    kinds = [str, bytes, int, float, datetime.datetime, Region, pathlib.Path, uuid.UUID, np.ndarray]
    names = {name for kind in kinds for name in dir(kind) if name.startswith("__")}
    missing = {
        name
        for name in names - {f"__{name}__" for name in UNSEEN.split()}
        if callable(getattr(carried.Carried, name, None)) and name not in vars(carried.Carried)
    }
    assert missing == set()


def test_explain_tells_what_calls_with_read_arguments_have():
    model = dg.delayed(weighted(READS["equal"]), compile=True)
    items = tagged(NAMES)
    evaluated(model, items)
    assert "is compiled to" in dg.explain(model, items[0], X)
    numbered = dg.delayed(renewed(fields), compile=True)
    evaluated(numbered, list(enumerate(CURVES)))
    assert "is compiled to" in dg.explain(numbered, (3, CURVES[3]), X)
    keys, number_of = OTHERS["the number in a UUID"]
    of_keys = dg.delayed(weighted(number_of), compile=True)
    for _ in range(2):  # before and after its calls
        assert "among the arguments is UUID" in dg.explain(of_keys, (keys[0], *CURVES[0]), X)
        evaluated(of_keys, tagged(keys))


@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("changed", ["attribute", "value", "method"])
def test_a_member_among_the_arguments_may_change(changed, is_sum, in_line):
    class Loss(enum.Enum):
        SQUARE = [2.0]  # noqa: RUF012
        ABSOLUTE = [1.0]  # noqa: RUF012

        def weight(self):
            return self.value[0] * scale_of(self)

    def scale_of(member):
        return member.scale

    def change(number):
        Loss.SQUARE.scale = number if changed == "attribute" else 1.0
        Loss.SQUARE.value[0] = number if changed == "value" else 2.0
        if changed == "method":
            Loss.weight = lambda self: number

    def model(item, x):
        loss, y = item
        if loss.name == "SQUARE":
            return np.sum((y - x) ** 2) * loss.weight()
        return np.sum(y - x)

    def run(choice):
        made, results = dg.delayed(model, compile=choice), []
        items = [(member, np.float64(k)) for k in range(20) for member in Loss]
        for n in range(60):
            change(3.0 + n // 20)
            parts = (dg.map_sum, made, items) if is_sum else (made, items[n % 2])
            results.append(dg.value_and_grad(functools.partial(*parts))(1.5))
        return results

    assert run("auto") == run(False)
