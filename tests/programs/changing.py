"""Objectives that change something between models which a call has seen, as plain NumPy runs them.

Each is a function of ``to`` (``NumPy`` or ``Recorded``) and x, a vector of three numbers. Its value
is NumPy's, or an error has the words beside it.
"""

# ruff: noqa: B007, B023, F821  that is what they are about

import functools
import types

import autograd.numpy as np
import numpy

import daskgrad as dg

READ_LATER = "has changed after the call"
IN_PLACE = "changes an array in place"
READ_ONLY = "read-only"
VALUE = "needs the value|whose derivative would be lost|has no attribute|which writes into"

X = numpy.array([0.5, -1.2, 2.0])
NUMBERS = (1.0, 2.0, 3.0)
LARGE = 40_000  # numbers that nobody copies


class NumPy:
    """Models are plain functions, and sums are loops."""

    call = staticmethod(lambda fun, **_: fun)
    add = staticmethod(lambda fun, items, *shared: sum(fun(item, *shared) for item in items))
    mean = staticmethod(
        lambda fun, items, *shared: sum(fun(item, *shared) for item in items) / len(items)
    )
    slices = staticmethod(lambda fun, items, *shared: fun(items, *shared))
    both = staticmethod(sum)
    zip = staticmethod(lambda *parts: list(zip(*parts, strict=True)))
    rule = difference = root = staticmethod(lambda fun: fun)

    @staticmethod
    def scan(step, state, n, *shared, xs=None):
        for turn in range(n):
            state = step(state, *(() if xs is None else (xs[turn],)), *shared)
        return state

    @staticmethod
    def overlap(step, x):
        return np.sum(step(np.concatenate([x[-1:], x, x[:1]])) ** 2)


class Recorded:
    call = dg.delayed
    add, mean, slices, both, zip, scan = (
        dg.map_sum,
        dg.map_mean,
        dg.reduce_sum,
        dg.sum,
        dg.zip,
        dg.scan,
    )
    difference = dg.finite_difference

    @staticmethod
    def rule(fun):
        ruled = dg.custom_vjp(fun)
        ruled.defvjp(
            lambda x: (fun(x), x),
            lambda x, cotangent: (cotangent * (fun(x + 0.5) - fun(x - 0.5)) * np.ones(3) / 3,),
        )
        return dg.delayed(ruled)

    @staticmethod
    def overlap(step, x):
        later = dg.map_overlap(step, dg.grid(x, blocks=1))
        return dg.sum(later.map(lambda block: np.sum(block**2)))


def square(x):
    return np.sum(x**2)


def weighted(weights, x):
    return np.sum(weights * x**2)


PROGRAMS = {}


def program(expected=None):
    """Enters a program: ``expected`` has the words of an error that may be raised instead."""

    def enter(fun):
        PROGRAMS[fun.__name__] = fun, expected
        return fun

    return enter


# ------------------------------------------------------------------------------- closures


@program()
def lambda_in_a_loop(to, x):
    return sum(to.call(lambda x: k * square(x))(x) for k in NUMBERS)


@program()
def closure_of_a_local(to, x):
    k, total = 1.0, 0.0
    model = to.call(lambda x: k * square(x))
    for k in NUMBERS:
        total += model(x)
    return total


@program()
def array_in_a_closure(to, x):
    weights, total = np.ones(3), 0.0
    model = to.call(lambda x: np.sum(weights * x**2))
    for k in NUMBERS:
        weights[:] = k
        total += model(x)
    return total


@program()
def list_in_a_closure(to, x):
    factors, total = [1.0], 0.0
    model = to.call(lambda x: factors[0] * square(x))
    for k in NUMBERS:
        factors[0] = k
        total += model(x)
    return total


@program()
def array_of_a_dict(to, x):
    data = {"w": np.ones(3)}
    model = to.call(lambda x: np.sum(data["w"] * x**2))
    first = model(x)
    data["w"] *= 5.0
    second = model(x)
    data["w"] = np.zeros(3)
    return first + second


@program()
def function_in_a_closure(to, x):
    k, total = 1.0, 0.0

    def factor():
        return k

    model = to.call(lambda x: factor() * square(x))
    for k in NUMBERS:
        total += model(x)
    return total


@program()
def recursive_function(to, x):
    k, total = 1.0, 0.0

    def power(n, x):
        return x if n == 0 else k * power(n - 1, x)

    model = to.call(lambda x: square(power(2, x)))
    for k in NUMBERS:
        total += model(x)
    return total


@program()
def generator_expression(to, x):
    return to.both([to.call(lambda x: square(k * x))(x) for k in (k**2 for k in NUMBERS)])


@program()
def deleted_name(to, x):
    k = 3.0
    value = to.call(lambda x: k * square(x))(x)
    del k
    return value


@program()
def default_argument(to, x):
    def model(x, factors=[1.0]):  # noqa: B006
        return factors[0] * square(x)

    total = 0.0
    for k in NUMBERS:
        model.__defaults__[0][0] = k
        total += to.call(model)(x)
    return total


@program()
def other_defaults(to, x):
    def model(x, *, k=1.0):
        return k * square(x)

    total = 0.0
    for k in NUMBERS:
        model.__kwdefaults__ = {"k": k}
        total += to.call(model)(x)
    return total


@program()
def partial_of_a_list(to, x):
    factors, total = [1.0], 0.0
    model = to.call(functools.partial(lambda factors, x: factors[0] * square(x), factors))
    for k in NUMBERS:
        factors[0] = k
        total += model(x)
    return total


@program()
def partial_of_an_array(to, x):
    weights = np.ones(3)
    first = to.call(functools.partial(weighted, weights))(x)
    weights += 4.0
    return first + to.call(functools.partial(weighted, weights))(x)


class Scaled:
    def __init__(self, scale):
        self.scale, self.weights = scale, np.ones(3)

    def value(self, x):
        return self.scale * np.sum(self.weights * x**2)

    def __call__(self, x):
        return self.value(x)


@program(READ_LATER)
def method_of_an_object(to, x):
    scaled, total = Scaled(1.0), 0.0
    for k in NUMBERS:
        scaled.scale = k
        total += to.call(scaled.value, name="value")(x)
    return total


@program(READ_LATER)
def object_that_is_called(to, x):
    scaled, total = Scaled(1.0), 0.0
    for k in NUMBERS:
        scaled.scale = k
        total += to.call(scaled, name="scaled")(x)
    return total


@program(READ_LATER)
def array_of_an_object(to, x):
    scaled = Scaled(1.0)
    first = to.call(lambda x: scaled.value(x))(x)
    scaled.weights *= 3.0
    return first + to.call(lambda x: scaled.value(x))(x)


@program(READ_LATER)
def namespace_in_a_closure(to, x):
    settings, total = types.SimpleNamespace(k=1.0), 0.0
    model = to.call(lambda x: settings.k * square(x))
    for settings.k in NUMBERS:
        total += model(x)
    return total


@program(READ_LATER)
def object_as_argument(to, x):
    scaled, total = Scaled(1.0), 0.0
    model = to.call(lambda scaled, x: scaled.scale * square(x))
    for k in NUMBERS:
        scaled.scale = k
        total += model(scaled, x)
    return total


@program(READ_LATER)
def attribute_of_a_function(to, x):
    def model(x):
        return model.k * square(x)

    total = 0.0
    for model.k in NUMBERS:
        total += to.call(model)(x)
    return total


@program(READ_LATER)
def attribute_of_a_class(to, x):
    class Settings:
        k = 1.0

    total = 0.0
    for k in NUMBERS:
        Settings.k = k
        total += to.call(lambda x: Settings.k * square(x))(x)
    return total


counter = 0.0
table = {"k": 1.0}


def counted(x):
    return counter * square(x)


@program()
def global_counter(to, x):
    global counter
    counter, total = 0.0, 0.0
    for _ in NUMBERS:
        counter += 1.0
        total += to.call(counted)(x)
    counter = 0.0
    return total


@program()
def entry_of_a_global(to, x):
    total = 0.0
    for table["k"] in NUMBERS:
        total += to.call(lambda x: table["k"] * square(x))(x)
    table["k"] = 1.0
    return total


@program()
def helper_of_a_global(to, x):
    global counter
    counter = 2.0
    first = to.call(lambda x: counted(x) ** 2)(x)
    counter = 0.0
    return first


@program(READ_ONLY)
def large_array_in_a_closure(to, x):
    weights = np.ones(LARGE)
    first = to.call(lambda x: np.sum(weights) * square(x))(x)
    weights[7] = 9e9
    return first


@program(READ_LATER)
def view_of_a_large_array_in_a_closure(to, x):
    weights = np.ones(LARGE)
    view = weights[:]
    first = to.call(lambda x: np.sum(weights) * square(x))(x)
    view *= 3.0
    return first


# ------------------------------------------------------------------------------ arguments


@program()
def work_array(to, x):
    weights, total = np.zeros(3), 0.0
    for k in NUMBERS:
        weights[:] = k
        total += to.call(weighted)(weights, x)
    return total


@program()
def view_of_buffer(to, x):
    buffer, total = np.zeros(6), 0.0
    weights = buffer[::2]
    for k in NUMBERS:
        buffer += k
        total += to.call(weighted)(weights, x)
    return total


@program()
def out_argument(to, x):
    weights = np.ones(3)
    first = to.call(weighted)(weights, x)
    np.multiply(weights, 3.0, out=weights)
    return first + to.call(weighted)(weights, x)


@program()
def fill_and_sort(to, x):
    weights = np.array([3.0, 1.0, 2.0])
    total = to.call(weighted)(weights, x)
    weights.sort()
    total += to.call(weighted)(weights, x)
    weights.fill(0.0)
    return total


@program()
def rolled_in_place(to, x):
    weights, total = np.array([3.0, 1.0, 2.0]), 0.0
    for _ in range(3):
        total += to.call(weighted)(weights, x)
        weights[:] = np.roll(weights, 1)
    return total


@program()
def array_by_name(to, x):
    weights = np.ones(3)
    first = to.call(weighted)(x=x, weights=weights)
    weights[:] = 7.0
    return first


@program()
def array_of_a_list(to, x):
    parts = [np.ones(3), {"k": 2.0}]
    first = to.call(lambda parts, x: parts[1]["k"] * weighted(parts[0], x))(parts, x)
    parts[0] *= 4.0
    parts[1]["k"] = 9.0
    return first


@program()
def set_as_argument(to, x):
    chosen = {1, 2}
    first = to.call(lambda chosen, x: len(chosen) * square(x))(chosen, x)
    chosen.add(5)
    return first


@program()
def numpy_between_models(to, x):
    weights, total = np.zeros(3), 0.0
    for k in NUMBERS:
        weights[:] = k
        total = total + np.sum(weights * x)
    return total


@program()
def numpy_on_values_of_models(to, x):
    weights, y = np.ones(3), to.call(np.sin)(x)
    first = np.dot(weights, y)
    weights[1] = -4.0
    return first + np.sum(np.where(weights > 0, y, 0.0))


@program()
def index_array(to, x):
    places = np.array([0, 1])
    first = to.call(np.sin)(x)[places]
    places[:] = 2
    return np.sum(first * x[places])


@program()
def work_array_of_72_kB(to, x):
    weights, total = np.zeros(9000), 0.0
    for k in NUMBERS:
        weights[:] = k
        total += np.sum(weights * np.sum(x)) / 9000
    return total


@program(READ_ONLY)
def large_work_array(to, x):
    weights, total = np.zeros(LARGE), 0.0
    for k in NUMBERS:
        weights[:] = k
        total += to.call(lambda w, x: np.mean(w) * square(x))(weights, x)
    return total


@program(READ_LATER)
def large_array_through_a_view(to, x):
    weights = np.ones(LARGE)
    view = weights.reshape(200, 200)
    first = to.call(lambda w, x: np.mean(w) * square(x))(weights, x)
    view[:] = 5.0
    return first


# ----------------------------------------------------------------------------------- sums


@program()
def closure_of_a_sum(to, x):
    total = 0.0
    for k in NUMBERS:
        total = total + to.add(lambda item, x: k * item * square(x), [1.0, 2.0], x)
    return total


@program()
def closure_of_a_mean(to, x):
    k, means = 1.0, []
    for k in NUMBERS:
        means.append(to.mean(lambda item, x: k * item * square(x), [1.0, 2.0], x))
    return to.both(means)


@program()
def closure_of_slices(to, x):
    weights, rows, total = np.ones(4), np.arange(4.0), 0.0
    for k in NUMBERS:
        weights[:] = k
        total = total + to.slices(lambda rows, x: np.sum(weights * rows) * square(x), rows, x)
    return total


@program()
def items_of_an_array(to, x):
    items = np.array([1.0, 2.0])
    first = to.add(lambda item, x: item * square(x), items, x)
    items *= 10.0
    return first + to.add(lambda item, x: item * square(x), items, x)


@program()
def in_loop_element(to, x):
    items = [np.array([1.0, 2.0, 3.0]), np.ones(3)]
    first = to.add(weighted, items, x)
    items[0][1] = -6.0
    items[1] = np.zeros(3)
    return first + to.add(weighted, items, x)


@program()
def items_of_dicts(to, x):
    items = [{"w": np.ones(3), "k": 1.0}, {"w": np.ones(3), "k": 2.0}]
    first = to.add(lambda item, x: item["k"] * weighted(item["w"], x), items, x)
    items[0]["w"] *= 3.0
    items[1]["k"] = 8.0
    return first


@program(READ_LATER)
def items_that_are_objects(to, x):
    items = [Scaled(1.0), Scaled(2.0)]
    first = to.add(lambda item, x: item.scale * square(x), items, x)
    items[1].scale = 7.0
    return first


@program()
def zipped_items(to, x):
    first, second = np.array([1.0, 2.0]), [3.0, 4.0]
    total = to.add(lambda pair, x: pair[0] * pair[1] * square(x), to.zip(first, second), x)
    first[:] = 0.0
    second[0] = 9.0
    return total


@program()
def shared_argument_of_a_sum(to, x):
    weights = np.ones(3)
    first = to.add(lambda item, w, x: item * weighted(w, x), [1.0, 2.0], weights, x)
    weights -= 3.0
    return first


@program(READ_ONLY)
def large_items(to, x):
    items = np.ones((LARGE, 2))
    first = to.slices(lambda rows, x: np.sum(rows) * square(x), items, x)
    items[3] = 4.0
    return first


@program(READ_LATER)
def many_large_items(to, x):
    items = [np.ones(LARGE) for _ in range(3)]
    first = to.add(lambda item, x: np.mean(item) * square(x), items, x)
    items[2][1] = 4.0
    return first


@program()
def sum_of_nodes_in_a_list(to, x):
    terms = [to.call(square)(k * x) for k in NUMBERS]
    total = to.both(terms)
    terms[0] = terms[1]
    return total


# --------------------------------------------------------------- loops, grids, other rules


@program()
def state_in_place(to, x):
    state = np.ones(3)
    last = to.scan(lambda state, x: state * np.cos(x), state, 3, x)
    state *= 5.0
    return to.call(square)(last)


@program()
def closure_of_a_step(to, x):
    total = 0.0
    for k in NUMBERS:
        total += to.call(square)(to.scan(lambda state, x: state * np.cos(k * x), np.ones(3), 3, x))
    return total


@program()
def rows_of_a_loop(to, x):
    xs = np.arange(3.0)
    last = to.scan(lambda state, row, x: state + row * np.sin(x), np.ones(3), 3, x, xs=xs)
    xs[:] = 0.0
    return to.call(square)(last)


@program()
def closure_of_a_stencil(to, x):
    total = 0.0
    for k in NUMBERS:
        total += to.overlap(lambda u: k * u[:-2] + u[2:], x)
    return total


@program()
def closure_of_a_rule(to, x):
    total = 0.0
    for k in NUMBERS:
        total += to.rule(lambda x: k * np.sum(x))(x)
    return total


@program()
def closure_of_differences(to, x):
    total, k = 0.0, 0.0
    model = to.difference(lambda x: k * square(x))
    for k in NUMBERS:
        total += model(x)
    return total


# ------------------------------------------------------------------ in place, between models


@program(IN_PLACE)
def another_name(to, x):
    y = to.call(np.exp)(x)
    z = y
    z += 1.0
    return np.sum(y * z)


@program(IN_PLACE)
def slice_of_value(to, x):
    y = np.exp(x)
    tail = y[1:]
    tail *= 0.0
    return np.sum(y**2)


@program(IN_PLACE)
def rows_of_a_table(to, x):
    table = np.outer(x, x)
    for number in range(3):
        row = table[number]
        row += 1.0
    return np.sum(table)


@program(IN_PLACE)
def transpose_in_place(to, x):
    table = to.call(lambda x: np.outer(x, x))(x)
    turned = table.T
    turned -= 1.0
    return np.sum(table)


@program(IN_PLACE)
def sibling_views(to, x):
    y = to.call(np.exp)(x)
    head, tail = y[:2], y[1:]
    head *= 3.0
    return np.sum(tail)


@program(IN_PLACE)
def base_of_a_view(to, x):
    y = np.exp(x)
    flat = np.reshape(y, (3, 1))
    y **= 2
    return np.sum(flat)


@program(IN_PLACE)
def helper_that_changes_an_array(to, x):
    def scaled(s):
        s *= 2.0
        return s

    y = to.call(np.sin)(x)
    return np.sum(scaled(y)) + np.sum(y)


@program()
def helper_that_changes_a_number(to, x):
    def scaled(s):
        s *= 2.0
        return s

    s = np.sum(np.sin(x))
    t = to.call(square)(x)
    return scaled(s) + s + scaled(t) * t


@program()
def best_so_far(to, x):
    total = 0.0
    before = total
    for k in NUMBERS:
        before = total
        total += to.call(square)(k * x)
    return total + 2.0 * before


@program()
def disjoint_parts(to, x):
    y = to.call(np.exp)(x)
    head, tail = y[:1], y[1:]
    head *= 3.0
    tail += 1.0
    return np.sum(head) * np.sum(tail)


@program()
def array_used_before(to, x):
    y = to.call(np.exp)(x)
    first = np.sum(y**2)
    y -= 1.0
    return first + np.sum(y)


@program()
def selection_is_a_copy(to, x):
    y = to.call(np.exp)(x)
    chosen = y[np.array([0, 2])]
    chosen *= 7.0
    return np.sum(chosen) + np.sum(y)


@program("out=")
def ufunc_with_out(to, x):
    y = np.exp(x)
    np.add(y, 1.0, out=y)
    return np.sum(y)


@program("assignment to an item")
def entry_assigned(to, x):
    y = np.exp(x)
    y[0] = 1.0
    return np.sum(y)


@program(VALUE)
def sorted_in_place(to, x):
    y = np.exp(x)
    y.sort()
    return np.sum(y * x)


@program(VALUE)
def filled_in_place(to, x):
    y = to.call(np.exp)(x)
    y.fill(0.0)
    return np.sum(y)


@program("np.where")
def copied_into(to, x):
    y = np.exp(x)
    np.copyto(y, 1.0)
    return np.sum(y)


@program()
def nan_mask_between(to, x):
    y = np.array([1.0, np.nan, 3.0]) * x
    return np.sum(np.where(y != y, 0.0, x) ** 2) + np.sum(x * (y == y))


@program(VALUE)
def nan_mask_of_a_model(to, x):
    y = to.call(np.sin)(x)
    return np.sum(np.where(y != y, 0.0, y))


def reference(fun):
    """Value and gradient of a program in plain NumPy, by differences."""
    with numpy.errstate(all="ignore"):
        value = fun(NumPy, X.copy())
        steps = 1e-6 * numpy.eye(3)
        slopes = [(fun(NumPy, X + step) - fun(NumPy, X - step)) / 2e-6 for step in steps]
    return value, numpy.array(slopes)
