"""Hostile paths: models that print, log, warn or raise on some calls, and are quiet on all others.

A row makes a model anew, and a function that makes its calls loud or quiet. It names by which path
calls are judged, and which data they get.
"""

import argparse
import contextlib
import dataclasses
import functools
import logging
import os
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import daskgrad as dg

X = np.linspace(0.1, 1.0, 5)
LATE = 24  # the first loud call
UNTIL = 27  # the first quiet one after these


def growing(n: int) -> np.ndarray:
    return X + 0.01 * n


def sometimes_negative(n: int) -> np.ndarray:
    return growing(n) * (-1 if n % 5 == 4 else 1)


def late_negative(n: int) -> np.ndarray:
    return growing(n) * (-1 if LATE <= n < UNTIL else 1)


def of_two_sizes(n: int) -> np.ndarray:
    return growing(n)[: 3 if n % 2 else 5]


def unchanged(is_loud: bool) -> None:
    pass


class Row(NamedTuple):
    make: Callable[[], Any]  # a model, or a model and what makes it loud
    is_compiled: bool | None = True  # where it is quiet; None: that hangs on the calls
    data: Callable[[int], np.ndarray] = growing


class Writer:
    def write(self, text):
        sys.stdout.write(text)

    def flush(self):
        pass


class Negative(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


class Settings:
    verbose = False

    def __init__(self, rate):
        self.rate = rate

    @property
    def factor(self):
        if self.verbose:
            print("factor")
        return self.rate

    @classmethod
    def offset(cls):
        if cls.verbose:
            print("offset")
        return 1.0

    @staticmethod
    def total(x):
        return np.sum(x)


class Slotted:
    __slots__ = ("later",)


def switched(model):
    """A model of a switch, and the switch."""
    switch = {"is_on": False}

    def change(is_loud):
        switch["is_on"] = is_loud

    return functools.partial(model, switch), change


def logger(level=logging.WARNING):
    logger = logging.Logger("quiet", level)
    logger.addHandler(logging.StreamHandler(Writer()))
    return logger


# -------------------------------------------------------------------------------- quiet branches


def logs():
    log, parent = logging.getLogger("daskgrad_tests.model"), logging.getLogger("daskgrad_tests")
    parent.propagate, parent.handlers = False, [logging.StreamHandler(Writer())]
    parent.setLevel(logging.WARNING)

    def model(x):
        log.debug("x is %s", x.shape)
        return np.sum(x**2)

    def change(is_loud):
        parent.setLevel(logging.DEBUG if is_loud else logging.WARNING)

    return model, change


def logs_if_enabled():
    model, change = logs()
    log = logging.getLogger("daskgrad_tests.model")

    def asks(x):
        if log.isEnabledFor(logging.DEBUG):
            log.debug("sum")
        return model(np.log(x))

    return asks, change


def logs_unless_disabled():
    log = logging.getLogger("daskgrad_tests.disabled")
    log.propagate, log.handlers = False, [logging.StreamHandler(Writer())]
    log.setLevel(logging.DEBUG)

    def model(x):
        log.debug("x")
        return np.sum(x)

    def change(is_loud):
        logging.disable(logging.NOTSET if is_loud else logging.CRITICAL)

    return model, change


def logs_through_adapter():
    log = logger()
    adapter = logging.LoggerAdapter(log, {})

    def model(x):
        adapter.info("x")
        return np.sum(x)

    def change(is_loud):
        log.disabled = False
        log.setLevel(logging.INFO if is_loud else logging.ERROR)
        log._cache.clear()  # a logger of a manager does so

    return model, change


class Logging:
    def __init__(self):
        self.log, self.weight = logger(), 2.0

    def predict(self, x):
        self.log.debug("x")
        return np.sum(np.log(x)) * self.weight


def logs_in_method():
    held = Logging()

    def change(is_loud):
        held.log.disabled = not is_loud
        held.log.setLevel(logging.DEBUG if is_loud else logging.ERROR)
        held.log._cache.clear()

    return held.predict, change


def logs_with_another_method():
    class Logger(logging.Logger):  # others log, too, in other threads
        pass

    log = Logger("quiet", logging.WARNING)

    def model(x):
        log.debug("x")
        return np.sum(x)

    def change(is_loud):
        if is_loud:
            Logger.debug = lambda *_: print("patched")
        elif "debug" in vars(Logger):
            del Logger.debug

    return model, change


def warns(x):
    if x[0] < 0.0:
        warnings.warn("negative", stacklevel=1)
        print("negative")
    return np.sum(x**2)


def prints(x):
    if x[0] < 0.0:
        print("negative")
    return np.sum(x**2)


def raises(x):
    if x.ndim > 1:
        raise Negative(f"{x}", 3)
    return np.sum(x**2)


def raises_and_catches(x):
    try:
        if x[0] < 0.0:
            raise Negative("negative", 3)
    except Negative as error:
        print(error.code)
    return np.sum(x**2)


def imports(x):
    if x[0] < 0.0:
        import time

        print(time.time() > 0.0)
    return np.sum(x)


def prints_if(kind):
    def make():
        settings = kind(verbose=False)

        def model(x):
            if settings.verbose:
                print("verbose")
            return np.sum(x**2)

        return model, functools.partial(setattr, settings, "verbose")

    return make


@dataclasses.dataclass
class Configuration:
    verbose: bool = False


def prints_if_global():
    names = {"np": np, "VERBOSE": False, "__name__": "a_module"}
    exec("def model(x):\n    if VERBOSE: print('x')\n    return np.sum(x)", names)
    return names["model"], lambda is_loud: names.update(VERBOSE=is_loud)


def many_names():
    """Names so many that an instruction has its argument in two."""
    names = {f"number_{n}": float(n) for n in range(170)} | {"np": np, "__name__": "a_module"}
    lines = [f"    total = total + number_{n}" for n in range(170)]
    text = ["def model(x):", "    total = 0.0", *lines, "    if x.ndim > 1: print('x')"]
    text += ["    if VERBOSE: print('verbose')", "    return np.sum(x) * total"]
    exec("\n".join(text), names | {"VERBOSE": False}, names)
    model = types.FunctionType(names["model"].__code__, names | {"VERBOSE": False})
    return model, lambda is_loud: model.__globals__.update(VERBOSE=is_loud)


def many_names_that_print():
    names = {f"number_{n}": float(n) for n in range(170)} | {"np": np, "__name__": "a_module"}
    lines = [f"    total = total + number_{n}" for n in range(170)]
    text = ["def model(x):", "    total = 0.0", *lines, "    print('x')"]
    exec("\n".join([*text, "    return np.sum(x) * total"]), names)
    return names["model"]


def in_generator(switch, x):
    def parts():
        for part in x:
            if switch["is_on"]:
                print("part")
            yield part

    return sum([part**2 for part in parts()])


def in_comprehension(switch, x):
    return sum([print("part") or part if switch["is_on"] else part**2 for part in x])


def in_recursion(switch, x, depth=3):
    if depth == 0:
        if switch["is_on"]:
            print("deep")
        return np.sum(x)
    return in_recursion(switch, x * 1.1, depth - 1)


def in_key(switch, x):
    def key(number):
        if switch["is_on"]:
            print("key")
        return -number

    return np.sum(x) * sorted([1, 2, 3], key=key)[0]


def in_map(switch, x):
    def square(part):
        if switch["is_on"]:
            print("part")
        return part * part

    return reduce(lambda one, other: one + other, map(square, x))


def in_timer():
    switch = {"is_on": False}

    def timed(fun):
        @functools.wraps(fun)
        def timed_fun(*args):
            begin = time.perf_counter() if switch["is_on"] else 0.0
            result = fun(*args)
            if switch["is_on"]:
                print("took", time.perf_counter() > begin)
            return result

        return timed_fun

    return timed(lambda x: np.sum(x)), functools.partial(switch.__setitem__, "is_on")


def in_class():
    settings = Settings(2.0)

    def model(x):
        return settings.total(x) * settings.factor + settings.offset()

    def change(is_loud):
        Settings.verbose = is_loud

    return model, change


def in_operators():
    switch = {"is_on": False}

    class Loud:
        def __enter__(self):
            if switch["is_on"]:
                print("in")
            return 2.0

        def __exit__(self, *_):
            if switch["is_on"]:
                print("out")

        def __eq__(self, other):
            if switch["is_on"]:
                print("equal")
            return True

        def __hash__(self):
            return 1

    loud = Loud()

    def model(x):
        with loud as factor:
            return np.sum(x) * factor * (2.0 if loud in [1.0] else 1.0)

    return model, functools.partial(switch.__setitem__, "is_on")


def in_subclass():
    class Base:
        def weight(self):
            return 2.0

        def predict(self, x):
            if x.ndim > 1:
                print("matrix")
            return np.sum(x) * self.weight()

    class Derived(Base):
        pass

    def loud(self):
        print("loud")
        return 3.0

    def change(is_loud):
        if is_loud:
            Derived.weight = loud
        elif "weight" in vars(Derived):
            del Derived.weight

    return Derived().predict, change


def by_other_code():
    def weight():
        return 2.0

    def loud():
        print("loud")
        return 3.0

    quiet = weight.__code__

    def model(x):
        if x.ndim > 1:
            print("matrix")
        return np.sum(x) * weight()

    def change(is_loud):
        weight.__code__ = loud.__code__ if is_loud else quiet

    return model, change


def by_key():
    known = {}

    def model(x):
        try:
            known["loud"]
        except KeyError:
            return np.sum(x)
        print("there")
        return 2.0 * np.sum(x)

    def change(is_loud):
        known.clear()
        known.update({"loud": 1} if is_loud else {})

    return model, change


def by_length():
    held = []

    def model(x):
        if len(held) > 2:
            print("long")
        return np.sum(x)

    def change(is_loud):
        held[:] = [1, 2, 3] if is_loud else []

    return model, change


class Base:
    pass


class Derived(Base):
    pass


class Computed:
    @property
    def later(self):
        return self.hidden


def function():
    pass


def asks(held, changed=None):
    """A model that asks whether an object has an attribute, which it gets later."""

    def make():
        def has(thing):
            return hasattr(thing, "later")

        def model(x):
            if has(held):
                print("later")
            return np.sum(x)

        def change(is_loud):
            thing = held if changed is None else changed
            if is_loud:
                thing.later = 1.0
            elif hasattr(thing, "later"):
                del thing.later

        return model, change

    return make


def asks_for_class():
    held = Settings(2.0)

    def model(x):
        if x.ndim > 1:
            print("matrix")
        return np.sum(x) * (held.rate if isinstance(held, Settings) else 1.0)

    def change(is_loud):
        held.__class__ = Base if is_loud else Settings

    return model, change


class Made:
    def __init__(self):
        print("made")


def asks_and_makes(x):
    held = Made()
    return np.sum(x) * (2.0 if isinstance(held, Made) else 1.0)


def asks_for_computed():
    held = Computed()

    def model(x):
        return np.sum(x) * (2.0 if hasattr(held, "later") else 1.0)

    def change(is_loud):
        vars(held).clear()
        vars(held).update({"hidden": 1.0} if is_loud else {})

    return model, change


QUIET = {
    "an object that is asked": Row(asks(Base())),
    "an object whose base is asked": Row(asks(Derived(), Base)),
    "a class that is asked": Row(asks(Derived, Base)),
    "a function that is asked": Row(asks(function)),
    "slots that are asked": Row(asks(Slotted())),
    "a class that is asked for": Row(asks_for_class),
    "a property that is asked": Row(asks_for_computed, is_compiled=False),
    "a partial that is asked": Row(asks(functools.partial(function)), is_compiled=False),
    "a log": Row(logs),
    "a log that is asked": Row(logs_if_enabled),
    "a log that is disabled": Row(logs_unless_disabled),
    "a log through an adapter": Row(logs_through_adapter),
    "a log in a method": Row(logs_in_method),
    "a log whose method is replaced": Row(logs_with_another_method),
    "a warning": Row(lambda: warns, data=late_negative),
    "print": Row(lambda: prints, data=late_negative),
    "print now and then": Row(lambda: prints, data=sometimes_negative),
    "an exception": Row(lambda: raises),
    "an exception that is caught": Row(
        lambda: raises_and_catches, is_compiled=False, data=late_negative
    ),
    "an import": Row(lambda: imports, data=late_negative),
    "a namespace": Row(prints_if(types.SimpleNamespace)),
    "arguments of a program": Row(prints_if(argparse.Namespace)),
    "a dataclass": Row(prints_if(Configuration)),
    "a global": Row(prints_if_global),
    "many names": Row(many_names),
    "a generator": Row(lambda: switched(in_generator)),
    "a comprehension": Row(lambda: switched(in_comprehension)),
    "recursion": Row(lambda: switched(in_recursion)),
    "a key": Row(lambda: switched(in_key)),
    "map and reduce": Row(lambda: switched(in_map)),
    "a decorator": Row(in_timer),
    "properties and methods": Row(in_class),
    "operators": Row(in_operators, is_compiled=False),
    "a subclass": Row(in_subclass),
    "other code": Row(by_other_code),
    "a key that is not there": Row(by_key),
    "a length": Row(by_length),
}


# ----------------------------------------------------------------------- what is loud at each call


def prints_always(x):
    print("x")
    return np.sum(x)


def prints_for_three(x):
    if x.size == 3:
        print("three")
    return np.sum(x**2)


def draws(x):
    return np.sum(x) * np.random.rand() if x[0] < 0.0 else np.sum(x)


def draws_alike():
    def change(is_loud):
        np.random.seed(5)

    return draws, change


def counts(is_by_data):
    def make():
        held = [0]

        def model(x):
            if x.ndim > 1:
                print("matrix")
            if not is_by_data or x[0] < 0.0:
                held[0] += 1
            return np.sum(x) * (1 + held[0])

        return model

    return make


def counts_in_global(condition):
    def make():
        names = {"np": np, "HELD": [0], "__name__": "a_module"}
        text = ["def model(x):", "    if x.ndim > 1: print('matrix')"]
        text += ["    held = HELD", f"    if {condition}: held[0] += 1"]
        exec("\n".join([*text, "    return np.sum(x) * held[0]"]), names)
        return names["model"]

    return make


def counts_in_object():
    class Counter:
        count = 0

        def predict(self, x):
            if x.ndim > 1:
                print("matrix")
            self.count += 1
            return np.sum(x) * self.count

    return Counter().predict


def loud_helper(number, is_loud=True):
    if is_loud:
        print("loud")
    return number


def in_thread(x):
    loud_helper(1.0, is_loud=False)
    thread = threading.Thread(target=loud_helper, args=(2.0,))
    thread.start()
    thread.join()
    return np.sum(x)


POOL = ThreadPoolExecutor(1)


def in_pool(x):
    return np.sum(x) * loud_helper(1.0, is_loud=False) * POOL.submit(loud_helper, 2.0).result()


def in_callback(x):
    return sum(map(loud_helper, [x[0], x[1]]))


def in_dispatch():
    @functools.singledispatch
    def weight(number):
        print("number")
        return number

    return lambda x: np.sum(x) * weight(2.0)


def in_vectorized():
    weights = np.vectorize(loud_helper, otypes=[float])
    return lambda x: np.sum(x) * np.sum(weights(np.ones(1)))


def in_context():
    @contextlib.contextmanager
    def loud():
        print("in")
        yield 2.0

    def model(x):
        with loud() as factor:
            return np.sum(x) * factor

    return model


def in_cache():
    @functools.lru_cache
    def weight(number):
        print("made")
        return number

    def model(x):
        return np.sum(x) * weight(2.0)

    return model, lambda is_loud: is_loud and weight.cache_clear()


def in_nested_model(x):
    def inner(y):
        print("inner")
        return np.sum(y**2)

    if x.ndim > 1:
        print("matrix")
    return np.sum(x * dg.grad(dg.delayed(inner))(X))


def of_environment():
    def model(x):
        if os.environ.get("DASKGRAD_TESTS"):
            print("environment")
        return np.sum(x)

    def change(is_loud):
        os.environ.pop("DASKGRAD_TESTS", None)
        if is_loud:
            os.environ["DASKGRAD_TESTS"] = "1"

    return model, change


def of_long_dict():
    long = dict.fromkeys(range(100_000), False)

    def model(x):
        if long[70]:
            print("long")
        return np.sum(x)

    return model, lambda is_loud: long.update({70: is_loud})


def of_missing_attribute(errors):
    def make():
        held = types.SimpleNamespace()

        def model(x):
            try:
                held.later  # noqa: B018
            except errors:
                return np.sum(x)
            print("later")
            return 2.0 * np.sum(x)

        def change(is_loud):
            vars(held).clear()
            vars(held).update({"later": 1} if is_loud else {})

        return model, change

    return make


def with_rules(*loud):
    """A model of a function with rules, which programs call at each call."""

    def make():
        def forward(x):
            if "forward" in loud and x[0] < 0.0:
                print("forward")
            return loud_helper(x * x, is_loud=False), x

        def backward(x, g):
            return (loud_helper(2.0 * x * g, is_loud="backward" in loud),)

        square = dg.custom_vjp(lambda x: forward(x)[0])
        square.defvjp(forward, backward)

        def model(x):
            if x.ndim > 1:
                print("matrix")
            return np.sum(loud_helper(square(x), is_loud=False))

        return model

    return make


def quiet_rules():
    square = dg.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, g: (2.0 * x * g,))

    def model(switch, x):
        return loud_helper(x)[0] if switch["is_on"] else np.sum(square(x))

    return switched(model)


def with_callback():
    def total(row):
        if row[0] < 0.0:
            print("negative")
        return np.sum(row)

    def model(x, rows=None):
        if x.ndim > 1:
            print("matrix")
        return np.sum(x) * np.apply_along_axis(total, 0, dg.value(x))

    return model


def with_operand():
    class Double:
        __array_ufunc__ = None

        def __rmul__(self, x):
            if x[0] < 0.0:
                print("negative")
            return x * 2.0

    double = Double()
    return lambda x: np.sum(x) * np.sum(dg.value(x) * double)


def logs_by_other_levels():
    log = logger()

    def model(x):
        log.log(logging.DEBUG, "quiet")
        reduce(log.log, ["loud"], logging.ERROR)
        return np.sum(x)

    return model


def asks_a_class():
    class Weights:
        def __class_getitem__(cls, number):
            print("weight")
            return number

    def model(x):
        if x.ndim > 1:
            print("matrix")
        return np.sum(x) * Weights[2.0]

    return model


def sets_a_tracer(x):
    sys.settrace(lambda *_: None)
    sys.settrace(None)
    print("x")
    return np.sum(x)


LOUD = {
    "print": Row(lambda: prints_always, False),
    "print for one size": Row(lambda: prints_for_three, data=of_two_sizes),
    "random numbers for some data": Row(draws_alike, data=sometimes_negative),
    "a clock": Row(lambda: lambda x: np.sum(x) * (time.time() > 0.0), False),
    "a count": Row(counts(False), False),
    "a count for some data": Row(counts(True), None, sometimes_negative),
    "a count in a global": Row(counts_in_global("True"), False),
    "a count in a global for some data": Row(
        counts_in_global("x[0] < 0.0"), None, sometimes_negative
    ),
    "a count in an object": Row(counts_in_object, False),
    "a thread": Row(lambda: in_thread, False),
    "a pool of threads": Row(lambda: in_pool, False),
    "map": Row(lambda: in_callback, False),
    "singledispatch": Row(in_dispatch, False),
    "np.vectorize": Row(in_vectorized, False),
    "a context": Row(in_context, False),
    "a cache": Row(in_cache),
    "a model within": Row(lambda: in_nested_model, False),
    "the environment": Row(of_environment),
    "a long dict": Row(of_long_dict, False),
    "an attribute that is not there": Row(of_missing_attribute((AttributeError,)), False),
    "an attribute that is not there, by its base": Row(of_missing_attribute(Exception), False),
    "rules that print for some data": Row(with_rules("forward"), False, sometimes_negative),
    "rules that print": Row(with_rules("backward"), False),
    "rules that may print": Row(with_rules(), False),
    "rules": Row(quiet_rules),
    "a callback": Row(with_callback, False, sometimes_negative),
    "an operand": Row(with_operand, False, sometimes_negative),
    "a log of two levels": Row(logs_by_other_levels, False),
    "a class that is asked for and called": Row(lambda: asks_and_makes, False),
    "a class that is indexed": Row(asks_a_class, False),
    "a tracer": Row(lambda: sets_a_tracer, False),
    "many names": Row(many_names_that_print, False),
}
