"""Hostile styles: models that make objects, keep tables, ask for identities, and the like, beside
something that changes between their calls.

Rows are as in ``hostile_paths``: a model, and a function that changes what it refers to.
"""

import abc
import contextlib
import dataclasses
import datetime
import enum
import functools
import os
import time
import types

import numpy as np
import scipy.sparse
from hostile_paths import Row
from numpy.random import default_rng

# ------------------------------------------------------------------------- objects that are made


def makes_objects():
    class Base:
        scale = 2.0

        def __init__(self, level):
            self.level = level

        def value(self):
            return self.level * self.scale

    class State(Base):
        def __init__(self, level, rate):
            super().__init__(level)
            self.rate, self.steps = rate, 0

        def step(self):
            self.level = self.level * self.rate
            self.rate += 1.0
            return self

    def model(x):
        return np.sum(State(x[0], x[1]).step().step().value() * x)

    def change(is_changed):
        Base.scale = 3.0 if is_changed else 2.0
        Base.value = (lambda self: -self.level) if is_changed else value

    value = Base.value
    return model, change


def makes_dataclasses(changed):
    """Dataclasses with a default that changes, or a factory that reads something."""
    return functools.partial(of_dataclasses, changed)


def of_dataclasses(changed):
    @dataclasses.dataclass(frozen=True)
    class Prior:
        scale: float = 1.0

    default, settings = Prior(2.0), types.SimpleNamespace(shift=1.0)

    @dataclasses.dataclass
    class Parameters:
        level: float
        prior: Prior = default
        shift: float = dataclasses.field(default_factory=lambda: settings.shift)

        def __post_init__(self):
            self.product = self.level * self.prior.scale

    def model(x):
        p = Parameters(x[0] * Prior(x[1]).scale)
        return np.sum(p.product * x) + p.shift

    def change(is_changed):
        if changed == "default":
            object.__setattr__(default, "scale", 3.0 if is_changed else 2.0)
        else:
            settings.shift = 5.0 if is_changed else 1.0

    return model, change


def makes_an_object_once():
    class Only:
        only = None

        def __new__(cls, level):
            if cls.only is None:
                cls.only = object.__new__(cls)
                cls.only.level = 0.0
            return cls.only

        def __init__(self, level):
            self.before, self.level = self.level, level

    return lambda x: np.sum(x) * Only(len(x)).before, lambda is_changed: Only(2.0)


def gives_one_object():
    class Only:
        def __new__(cls, level):
            return ONE[0]

    class Other(Only):
        def __init__(self, level):
            self.level = level

    ONE = [object.__new__(Other)]

    def change(is_changed):
        ONE[0].level = 7.0

    return lambda x: np.sum(x) * (ONE[0].level + Other(3.0).level), change


def makes_it_again():
    class Level:
        def __init__(self, level):
            self.level = level

    held = Level(3.0)

    def model(x):
        before = held.level
        held.__init__(3.0)
        return np.sum(x) * before

    def change(is_changed):
        held.level = 5.0

    return model, change


def keeps_its_objects():
    class State:
        def __init__(self, level):
            self.level = level

    kept = []

    def model(x):
        kept.append(State(1.0))
        return np.sum(x) * len(kept) * kept[0].level

    def change(is_changed):
        if kept:
            kept[0].level = 3.0

    return model, change


# ------------------------------------------------------------------------ attributes that are set


def sets_by(setter):
    """An object whose class has code that runs when an attribute is set."""

    def make():
        class State:
            def __init__(self, level):
                self.level = level

        setter(State)
        return lambda x: np.sum(x) * State(2.0).rate

    return make


def by_property(kind):
    def set_level(state, level):
        print("level", level)
        state.rate = level

    kind.level = property(None, set_level)


def by_descriptor(kind):
    class Attribute:
        def __set__(self, state, level):
            print("level", level)
            state.rate = level

    kind.level = Attribute()


def by_set_attribute(kind):
    def set_attribute(state, name, value):
        print(name, value)
        object.__setattr__(state, "rate", value)

    kind.__setattr__ = set_attribute


def counts_its_steps(kept):
    """A model that counts in a new object; ``kept``: and in one that lives on."""

    def make():
        class State:
            def __init__(self, level):
                self.level, self.steps = level, 0

            def step(self, by):
                self.level = self.level * by
                self.steps += 1

        held = State(1.0)

        def model(x):
            state = State(x[0])
            while state.steps < 3:
                state.step(x[1])
            if kept:
                held.step(1.0)
            return state.level * np.sum(x) * (held.steps + 1.0)

        def change(is_changed):
            held.steps = 5 if is_changed else 0

        return model, change

    return make


def makes_frozen(set_more):
    """A frozen dataclass that sets one more attribute, by ``set_more(made)``."""

    code = set_more.__code__.replace(co_name="__post_init__")

    def make():
        @dataclasses.dataclass(frozen=True)
        class State:
            level: float

            __post_init__ = types.FunctionType(code, globals())

        def change(is_changed):
            State.shift, KEPT.count = 3.0 if is_changed else 2.0, 1.0

        change(False)
        return lambda x: np.sum(State(x[0]).product * x) * State.shift, change

    return make


def set_plainly(self):
    object.__setattr__(self, "product", self.level * self.shift)


def set_by_a_variable(self):
    for name in ("product",):
        object.__setattr__(self, name, self.level * self.shift)


def set_another(self):
    held = KEPT
    object.__setattr__(held, "count", held.count + 1.0)
    object.__setattr__(self, "product", held.count)


KEPT = types.SimpleNamespace(count=1.0)


def sets_a_property_of_a_frozen_one():
    @dataclasses.dataclass(frozen=True)
    class State:
        level: float

        def __post_init__(self):
            object.__setattr__(self, "product", self.level)

        @property
        def product(self):
            return self.level

        @product.setter
        def product(self, product):
            print("product")

    return lambda x: np.sum(State(x[0]).product * x)


def sets_what_it_holds(write):
    """A model that sets an attribute of an object that lives on, by ``write(held, x)``."""

    def make():
        held = types.SimpleNamespace(mode=2.0, part=types.SimpleNamespace(mode=2.0))

        def model(x):
            before = held.mode
            write(held, x)
            return np.sum(x) * before * held.part.mode

        def change(is_changed):
            held.mode, held.part.mode = 5.0, 3.0

        return model, change

    return make


def set_same(held, x):
    held.mode = 2.0
    held.part.mode = 2.0


def set_other(held, x):
    held.mode = -held.mode


def set_for_some(held, x):
    if x[0] < 0.0:
        held.mode = held.mode + 1.0


def sets_what_is_not_there():
    class Held:
        mode = 2.0

    held = Held()

    def model(x):
        state = held
        before = state.mode
        state.mode = 3.0
        return np.sum(x) * before

    def change(is_changed):
        if is_changed:
            del held.mode

    return model, change


def sets_an_attribute_of_a_function():
    def helper(x):
        return np.sum(x)

    helper.factor = 2.0

    def model(x):
        fun = helper
        before = fun.factor
        fun.factor = 2.0
        return fun(x) * before

    def change(is_changed):
        helper.factor = 3.0

    return model, change


def sometimes_negative(n):
    return np.linspace(0.1, 1.0, 5) * (-1 if n % 7 == 6 else 1)


OBJECTS = {
    "objects that are made": Row(makes_objects),
    "dataclasses with a default": Row(makes_dataclasses("default")),
    "dataclasses with a factory": Row(makes_dataclasses("factory")),
    "objects that count": Row(counts_its_steps(False)),
    "objects that count, and one lives on": Row(counts_its_steps(True), False),
    "frozen dataclasses that set more": Row(makes_frozen(set_plainly)),
    "frozen dataclasses that set by a variable": Row(makes_frozen(set_by_a_variable), False),
    "frozen dataclasses that set another's": Row(makes_frozen(set_another), False),
    "frozen dataclasses with a property": Row(sets_a_property_of_a_frozen_one, False),
    "an object that is made once": Row(makes_an_object_once, False),
    "an object that is always given": Row(gives_one_object, False),
    "an object that is made again": Row(makes_it_again, False),
    "objects that are kept": Row(keeps_its_objects, False),
    "a property that prints": Row(sets_by(by_property), False),
    "a descriptor that prints": Row(sets_by(by_descriptor), False),
    "__setattr__ that prints": Row(sets_by(by_set_attribute), False),
    "an attribute that is set to what it was": Row(sets_what_it_holds(set_same)),
    "an attribute that is set to something else": Row(sets_what_it_holds(set_other), False),
    "an attribute that is set for some data": Row(
        sets_what_it_holds(set_for_some), None, sometimes_negative
    ),
    "an attribute that is set in an object": Row(sets_what_is_not_there),
    "an attribute of a function": Row(sets_an_attribute_of_a_function),
}


# ------------------------------------------------------------------- types, members, identities


def of_members(changed):
    """Members of an enumeration; one changes."""

    def make():
        class Loss(enum.Enum):
            SQUARE = [2.0]  # noqa: RUF012
            ABSOLUTE = [1.0]  # noqa: RUF012

            def __init__(self, _):
                self.scale = 1.0

            def weight(self):
                return self.scale * self.value[0]

        chosen = {"loss": Loss.SQUARE}

        def model(x):
            loss = chosen["loss"]
            if loss is Loss.SQUARE:
                return np.sum(x**2) * loss.weight()
            return np.sum(np.abs(x)) * loss.scale

        def change(is_changed):
            if changed == "value":
                Loss.SQUARE.value[0] = 3.0 if is_changed else 2.0
            elif changed == "attribute":
                Loss.SQUARE.scale = 3.0 if is_changed else 1.0
            elif changed == "method":
                Loss.weight = (lambda self: 5.0) if is_changed else weight
            else:
                chosen["loss"] = Loss.ABSOLUTE if is_changed else Loss.SQUARE

        weight = Loss.weight
        return model, change

    return make


def of_equal_members():
    class Loss(enum.Enum):
        SQUARE = "square"
        ABSOLUTE = "absolute"

        def __eq__(self, other):
            return settings.all_are_equal or self.name == other.name

        __hash__ = enum.Enum.__hash__

    settings = types.SimpleNamespace(all_are_equal=False)

    def model(x):
        return np.sum(x) * (2.0 if Loss.SQUARE == Loss.ABSOLUTE else 1.0)

    def change(is_changed):
        settings.all_are_equal = is_changed

    return model, change


def of_a_missing_value():
    missing = object()
    given = {"scale": missing}

    def model(x):
        scale = given.get("scale", 3.0)
        return np.sum(x) * (1.0 if scale is missing else scale)

    def change(is_changed):
        given["scale"] = 2.0 if is_changed else missing

    return model, change


def of_a_function():
    chosen = [np.exp]

    def model(x):
        return np.sum(chosen[0](x)) * (2.0 if chosen[0] is np.exp else 1.0)

    def change(is_changed):
        chosen[0] = np.sin if is_changed else np.exp

    return model, change


class Two:
    value = 2.0


def hides_a_name():
    same, other = [2.0], [2.0]
    chosen = [same]

    def model(x):
        Two = same
        is_same = (lambda: chosen[0] is Two)()
        return np.sum(x) * (2.0 if is_same else 1.0)

    def change(is_changed):
        chosen[0] = other if is_changed else same

    return model, change


def asks_for_types(x):
    if type(x) is list or type(x[0]) not in (float, np.float64):
        print("unusual")
    return np.sum(x) * (1.0 if type(x) == np.ndarray else 2.0)  # noqa: E721


def asks_for_a_class():
    class Base:
        factor = 2.0

    class Other(Base):
        pass

    held = [Base()]

    def model(x):
        kind = held[0]
        return np.sum(x) * type(kind).factor * len(type(kind).__name__)

    def change(is_changed):
        Base.factor = 3.0 if is_changed else 2.0
        held[0] = Other() if is_changed else Base()

    return model, change


def makes_by_its_type(make):
    """A model that makes an object by ``make(held)``, which takes the type of another."""

    class Loud:
        factor = 2.0

        def __init__(self):
            print("made")

    held = object.__new__(Loud)
    return lambda: lambda x: np.sum(x) * make(held).factor


def by_a_variable(held):
    kind = type(held)
    return kind()


def of_two_dtypes(n):
    return np.linspace(0.1, 1.0, 5).astype(np.float32 if n % 2 else np.float64)


def of_one_or_another(ask):
    """``ask(thing, other)`` compares with one of two things; one has equals."""

    def make():
        first, second = [2.0], [2.0]
        chosen = [first]

        def change(is_changed):
            chosen[0] = second if is_changed else first

        return lambda x: np.sum(x) * (2.0 if ask(chosen[0], first) else 1.0), change

    return make


_ONE = 1.0
IDENTITIES = {
    "one thing or a class": Row(of_one_or_another(lambda a, b: a is (b or float)), False),
    "one thing if there is one": Row(
        of_one_or_another(lambda a, b: a is (b if b else None)), False
    ),
    "a member with another value": Row(of_members("value")),
    "a member with another attribute": Row(of_members("attribute")),
    "a member with another method": Row(of_members("method")),
    "another member": Row(of_members("name")),
    "members that say whether they are equal": Row(of_equal_members),
    "an object for a missing value": Row(of_a_missing_value),
    "a function that is asked for": Row(of_a_function),
    "a list that is asked for by the name of a class": Row(hides_a_name, False),
    "types": Row(lambda: asks_for_types),
    "types of two kinds of arrays": Row(lambda: asks_for_types, None, of_two_dtypes),
    "attributes of a type": Row(asks_for_a_class),
    "a type that is called": Row(makes_by_its_type(by_a_variable), False),
    "a type that is called at once": Row(makes_by_its_type(lambda held: type(held)()), False),
    "a type that is passed on beside a comparison": Row(
        makes_by_its_type(lambda held: (lambda kind, _: kind())(type(held), _ONE == 1.0)), False
    ),
    "a type that is called, for an attribute": Row(
        makes_by_its_type(lambda held: type(held)().__class__), False
    ),
}


# -------------------------------------------------------------------------------------- caches


def of_cache(change, decorate=functools.cache):
    """A model of a table that is made once, and of a setting; ``change(table, settings)``."""

    def make():
        settings = types.SimpleNamespace(scale=2.0)

        @decorate
        def table(count):
            return [np.full(count, settings.scale)]

        def model(x):
            return np.sum(x * table(5)[0])

        def change_it(is_changed):
            settings.scale = 3.0 if is_changed else 2.0
            change(table, is_changed)

        return model, change_it

    return make


def of_cached_method():
    class Basis:
        def __init__(self, scale):
            self.scale = scale

        @functools.lru_cache(maxsize=8)  # noqa: B019
        def table(self, count):
            return np.full(count, self.scale)

    held = Basis(2.0)

    def change(is_changed):
        held.scale = 3.0 if is_changed else 2.0
        if is_changed:
            Basis.table.cache_clear()

    return lambda x: np.sum(x * held.table(5)), change


def of_traced_numbers():
    @functools.cache
    def double(number):
        print("doubled")
        return 2.0 * number

    return lambda x: double(x[0]) + np.sum(x)


def counts_hits():
    @functools.cache
    def table(count):
        return np.ones(count)

    return lambda x: np.sum(x * table(5)) * table.cache_info().hits


def clears():
    @functools.cache
    def table(count):
        print("made")
        return np.ones(count)

    def model(x):
        table.cache_clear()
        return np.sum(x * table(5))

    return model


def of_other_types():
    """One and 1.0 are one key."""

    @functools.cache
    def sort(number):
        return 2.0 if type(number) is int else 3.0

    def change(is_changed):
        sort.cache_clear()
        if is_changed:
            sort(1.0)

    return lambda x: np.sum(x) * sort(1), change


def of_many_results():
    @functools.lru_cache(maxsize=1)
    def weight(count):
        print("made")
        return 2.0

    return lambda x: np.sum(x) * weight(5) + weight(3)


def of_cached_dicts():
    @functools.lru_cache(maxsize=4)
    def table(count):
        return {"weights": np.ones(count)}

    weights = table(3)["weights"]

    def change(is_changed):
        weights[0] = 5.0 if is_changed else 1.0

    return lambda x: np.sum(x * table(5)["weights"]) + np.sum(table(3)["weights"]), change


CACHES = {
    "cached dicts": Row(of_cached_dicts),
    "a cache": Row(of_cache(lambda table, is_changed: None)),
    "a cache that is cleared": Row(of_cache(lambda table, is_changed: table.cache_clear())),
    "a cache that is cleared, and made again": Row(
        of_cache(lambda table, is_changed: (table.cache_clear(), table(5)))
    ),
    "a bounded cache that is made again": Row(
        of_cache(
            lambda table, is_changed: (table.cache_clear(), table(5)),
            functools.lru_cache(maxsize=1),
        )
    ),
    "a bounded cache that holds something else meanwhile": Row(
        of_cache(
            lambda table, is_changed: (table(5), table(3), table(5)), functools.lru_cache(maxsize=1)
        )
    ),
    "a cached array that changes": Row(
        of_cache(lambda table, is_changed: table(5)[0].fill(5.0 if is_changed else 2.0))
    ),
    "a cached list that changes": Row(
        of_cache(lambda table, is_changed: table(5).__setitem__(0, np.full(5, 3.0 + is_changed)))
    ),
    "a cached method": Row(of_cached_method),
    "a cache of traced numbers": Row(of_traced_numbers, False),
    "a cache whose hits count": Row(counts_hits, False),
    "a cache that the model clears": Row(clears, False),
    "a cache of equal numbers": Row(of_other_types),
    "a cache of one result, for two": Row(of_many_results, False),
}


# ------------------------------------------------------- the environment, contexts, dispatches

NAME = "DASKGRAD_TESTS_SCALE"


def of_environment(read, value="3.0"):
    """A model that reads a variable of the environment, which changes or goes."""

    def make():
        def change(is_changed):
            os.environ[NAME] = "2.0"
            if is_changed and value is None:
                del os.environ[NAME]
            elif is_changed:
                os.environ[NAME] = value

        return lambda x: np.sum(x) * float(read()), change

    return make


def sets_the_environment():
    def model(x):
        before = os.environ.get(NAME, "1.0")
        os.environ[NAME] = "2.0"
        return np.sum(x) * float(before)

    def change(is_changed):
        os.environ[NAME] = "3.0"

    return model, change


def in_context(settings):
    """A context, and a class of one's own that is raised and caught within it."""

    class Negative(Exception):
        weight = 2.0

        def __init__(self, text):
            super().__init__(text)
            self.text = text

    @contextlib.contextmanager
    def stage(name):
        if settings.is_loud:
            print(name)
        try:
            yield settings.scale
        except FloatingPointError as error:
            raise Negative(name) from error

    def weight_of(name):
        try:
            if name not in settings.known:
                raise Negative(name)
        except Negative as error:
            return error.weight * len(error.text)
        return 1.0

    def model(x):
        with stage("first") as scale, stage("second"):
            return np.sum(x) * scale * weight_of("a") * weight_of("ab")

    return model, Negative


def in_contexts(changed):
    def make():
        settings = types.SimpleNamespace(is_loud=False, scale=2.0, known=["a"])
        model, kind = in_context(settings)

        def change(is_changed):
            if changed == "loud":
                settings.is_loud = is_changed
            elif changed == "class":
                kind.weight = 3.0 if is_changed else 2.0
            else:
                settings.scale = 3.0 if is_changed else 2.0
                settings.known = ["ab"] if is_changed else ["a"]

        return model, change

    return make


def counts_contexts():
    depths = [0]

    @contextlib.contextmanager
    def counted():
        depths.append(len(depths))
        yield

    def model(x):
        with counted():
            return np.sum(x) * len(depths)

    return model


def replaces_fields(changed):
    """A model that makes dataclasses of others, by ``dataclasses.replace``."""

    def make():
        @dataclasses.dataclass(frozen=True)
        class State:
            level: float
            rate: float
            shift: float = 1.0

            def __post_init__(self):
                if settings.is_loud:
                    print(self.rate)

        settings = types.SimpleNamespace(is_loud=False)
        start = State(1.0, 2.0)

        def model(x):
            state = dataclasses.replace(start, level=x[0])
            for each in (x[1], x[2]):
                state = dataclasses.replace(state, level=state.level * each + 1.0)
            return state.level * total(state) + np.sum(x)

        def total(state):
            return sum([getattr(state, "rate", 0.0), state.level])

        def change(is_changed):
            if changed == "field":
                object.__setattr__(start, "rate", 3.0 if is_changed else 2.0)
            elif changed == "shift":
                object.__setattr__(start, "shift", 3.0 if is_changed else 2.0)
            else:
                settings.is_loud = is_changed

        return model, change

    return make


def of_all_fields():
    @dataclasses.dataclass
    class State:
        level: float
        rate: float

        def __iter__(self):
            return iter([self.level])

    @dataclasses.dataclass
    class Other(State):
        def __post_init__(self):
            self.product = self.level * self.rate

    start = Other(2.0, 2.0)

    def change(is_changed):
        start.rate = 3.0 if is_changed else 2.0

    return lambda x: np.sum(x) * dataclasses.replace(start, level=4.0).product, change


class Square: ...


class Cube(Square): ...


class Virtual(abc.ABC): ...  # noqa: B024


def by_class(changed):
    """A function that is chosen by the class of its argument."""

    def make():
        @functools.singledispatch
        def power(kind, x):
            return x

        @power.register
        def of_square(kind: Square, x):
            return x**2 * settings.scale

        @power.register(np.ndarray)
        def of_array(x):
            return power(Cube(), x)

        def of_cube(kind, x):
            return x**3

        class Other: ...

        power.register(Virtual, of_cube)
        settings = types.SimpleNamespace(scale=2.0, kind=Other())

        def change(is_changed):
            if changed == "registry" and is_changed:
                power.register(Cube, of_cube)
            elif changed == "setting":
                settings.scale = 3.0 if is_changed else 2.0
            elif changed == "class" and is_changed:
                Virtual.register(Other)

        return lambda x: np.sum(power(x)) + np.sum(power(settings.kind, x)), change

    return make


def dispatches_loudly():
    @functools.singledispatch
    def weight(kind):
        print(kind)
        return 2.0

    @weight.register
    def _(kind: int):
        return 1.0

    return lambda x: np.sum(x) * weight(2.0)


OUTER = {
    "fields that are replaced": Row(replaces_fields("field")),
    "fields that nobody names": Row(replaces_fields("shift")),
    "an object of replaced fields that gets loud": Row(replaces_fields("loud")),
    "a product of replaced fields": Row(of_all_fields),
    "a variable of the environment": Row(of_environment(lambda: os.environ[NAME])),
    "... by get": Row(of_environment(lambda: os.environ.get(NAME, "5.0"), None)),
    "... by getenv": Row(of_environment(lambda: os.getenv(NAME, "5.0"), None)),
    "... if it is there": Row(of_environment(lambda: 2.0 + (NAME in os.environ), None)),
    "a variable that the model sets": Row(sets_the_environment),
    "a context with a setting": Row(in_contexts("setting")),
    "a context that gets loud": Row(in_contexts("loud")),
    "an exception with a constant": Row(in_contexts("class")),
    "a context that counts": Row(counts_contexts, False),
    "singledispatch with a setting": Row(by_class("setting")),
    "singledispatch of another class": Row(by_class("registry")),
    "singledispatch by a virtual base": Row(by_class("class")),
    "singledispatch that prints": Row(dispatches_loudly, False),
}


# ------------------------------------------------------ attributes that may be missing, seeds


def may_lack(change, read=lambda held: getattr(held, "scale", 1.0)):
    """A model that takes an attribute of an object if it is there; ``change(held, is_changed)``."""

    def make():
        class Held:
            other = 2.0

        held = Held()
        model = lambda x: np.sum(x) * read(held) * held.other  # noqa: E731
        return model, lambda is_changed: change(held, is_changed)

    return make


def in_the_object(held, is_changed):
    vars(held).pop("scale", None)
    if is_changed:
        held.scale = 3.0


def in_the_class(held, is_changed):
    if is_changed:
        type(held).scale = 3.0
    elif hasattr(type(held), "scale"):
        del type(held).scale


def by_a_property(held, is_changed):
    if is_changed:
        type(held).scale = property(lambda self: print("scale") or 3.0)


def by_any_name(held, is_changed):
    if is_changed:
        type(held).__getattr__ = lambda self, name: 3.0


def catches_all(held):
    try:
        return held.scale
    except:  # noqa: E722
        return 1.0


def of_a_name():
    held = types.SimpleNamespace(name="scale", scale=2.0, shift=3.0)

    def change(is_changed):
        held.name = "shift" if is_changed else "scale"

    return lambda x: np.sum(x) * getattr(held, held.name), change


def reads_from_another():
    """An attribute that is read plainly in one function, and may be missing in another."""

    class Held: ...

    held = Held()

    def plainly(thing):
        return thing.scale

    def model(x):
        return np.sum(x) * (plainly(held) if getattr(held, "scale", None) is not None else 1.0)

    def change(is_changed):
        in_the_object(held, is_changed)

    return model, change


def draws(draw):
    return lambda: lambda x: np.sum(x * draw(len(x)))


def draws_for_a_seed(seed):
    def make():
        settings = types.SimpleNamespace(seed=seed)

        def change(is_changed):
            settings.seed = 3 if is_changed else seed

        def model(x):
            return np.sum(x * np.random.default_rng(settings.seed).normal(size=len(x)))

        return model, change

    return make


def draws_in_turn():
    drawn = np.random.default_rng(5)
    return lambda x: np.sum(x * drawn.normal(size=len(x)))


def shuffles():
    order = [0.0, 1.0, 2.0, 3.0, 4.0]

    def model(x):
        np.random.default_rng(2).shuffle(order)
        return np.sum(x * np.array(order))

    return model


def of_a_function_of_that_name():
    space = {"np": np, "scale": 2.0}
    exec("def default_rng(seed): return scale", space)
    exec("def model(x): return np.sum(x) * default_rng(4)", space)

    def change(is_changed):
        space["scale"] = 3.0 if is_changed else 2.0

    return space["model"], change


def draws_by(draw):
    return lambda: lambda x: np.sum(x * draw())


SEEDS = (1,)
MISSING = {
    "an attribute that may come": Row(may_lack(in_the_object)),
    "an attribute of the class that may come": Row(may_lack(in_the_class)),
    "a property that may come": Row(may_lack(by_a_property)),
    "any attribute that may come": Row(may_lack(by_any_name)),
    "an attribute that may come, and any exception is caught": Row(
        may_lack(in_the_object, catches_all), False
    ),
    "an attribute of a variable name": Row(of_a_name, False),
    "an attribute that is read elsewhere": Row(reads_from_another),
    "attributes in an expression": Row(
        may_lack(in_the_object, lambda held: getattr([held][0], "scale", [1.0][0])),
    ),
    "an attribute of a computed name": Row(
        may_lack(in_the_object, lambda held: getattr(held, "".join(["sca", "le"]), 1.0)), False
    ),
    "an attribute whose name has branches": Row(
        may_lack(in_the_object, lambda held: getattr(held, "scale" if held else "a", 1.0)), False
    ),
    "a seed": Row(draws(lambda count: np.random.default_rng(1).normal(size=count))),
    "a seed of old": Row(draws(lambda count: np.random.RandomState(1).rand(count))),
    "a seed by name": Row(draws(lambda count: default_rng(1).random(count))),
    "a seed that may change": Row(draws_for_a_seed(2), False),
    "a seed by keyword": Row(draws_by(lambda: np.random.default_rng(seed=1).permutation(5)), False),
    "arguments of a seed": Row(
        draws_by(lambda: np.random.default_rng(*SEEDS).permutation(5)), False
    ),
    "a generator that lives on": Row(draws_in_turn, False),
    "a generator that shuffles": Row(shuffles, False),
    "a function like NumPy's": Row(of_a_function_of_that_name),
}


# -------------------------------------------------------------------- dates, sparse matrices


def of_dates(changed):
    def make():
        settings = types.SimpleNamespace(epoch=EPOCH, last=EPOCH + datetime.timedelta(days=3))

        def change(is_changed):
            setattr(settings, changed, EPOCH - datetime.timedelta(days=is_changed))

        return lambda x: np.sum(x) * (settings.last - settings.epoch).total_seconds(), change

    return make


def of_time_zone():
    date = datetime.datetime(2020, 6, 1)
    is_known = "TZ" in os.environ

    def change(is_changed):
        os.environ["TZ"] = "Asia/Tokyo" if is_changed else "UTC"
        if not (is_changed or is_known):
            del os.environ["TZ"]
        time.tzset()

    return lambda x: np.sum(x) * date.timestamp(), change


def of_sparse_matrix(change):
    """A model of a matrix, which ``change(held, is_changed)`` changes."""

    def make():
        held = {"matrix": scipy.sparse.csr_matrix(np.diag(np.arange(1.0, 6.0)))}
        return (
            lambda x: np.sum((held["matrix"] @ x) ** 2),
            lambda is_changed: change(held, is_changed),
        )

    return make


def scale_in_place(held, is_changed):
    held["matrix"].data[0] = 9.0 if is_changed else 1.0


def take_other_numbers(held, is_changed):
    held["matrix"].data = np.arange(1.0, 6.0) * (1 + is_changed)


def move_an_entry(held, is_changed):
    held["matrix"].indices[0] = 3 if is_changed else 0


def take_another(held, is_changed):
    held["matrix"] = scipy.sparse.csc_array(np.eye(5) * (1.0 + is_changed))


EPOCH = datetime.datetime(2020, 1, 1)
OTHERS = {
    "a date": Row(of_dates("last")),
    "another date": Row(of_dates("epoch")),
    "a date in the local zone": Row(of_time_zone, False),
    "a sparse matrix that changes": Row(of_sparse_matrix(scale_in_place)),
    "a sparse matrix with other numbers": Row(of_sparse_matrix(take_other_numbers)),
    "a sparse matrix whose entries move": Row(of_sparse_matrix(move_an_entry)),
    "another sparse matrix": Row(of_sparse_matrix(take_another)),
}

STYLES = {**OBJECTS, **IDENTITIES, **CACHES, **OUTER, **MISSING, **OTHERS}
# one call leaves something for the next, and several calls of an evaluation come in any order
OF_ORDER = {
    *("objects that count, and one lives on", "frozen dataclasses that set another's"),
    *("an object that is made once", "an object that is always given"),
    *("an object that is made again", "objects that are kept"),
    *("an attribute that is set to what it was", "an attribute that is set to something else"),
    *("an attribute that is set for some data", "an attribute that is set in an object"),
    *("an attribute of a function", "a cache whose hits count", "a variable that the model sets"),
    *("a context that counts", "a generator that lives on", "a generator that shuffles"),
}
