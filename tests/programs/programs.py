"""Random programs as data: which model takes which earlier values. Interpreted twice.

``run(steps, values, PLAIN)`` is ordinary Python, which plain autograd differentiates;
``run(steps, values, DASKGRAD)`` records nodes. Workers import this module for the models.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import optree
from hypothesis import strategies as st

import daskgrad as dg

# ------------------------------------------------------------------------------- the models


def squash(a):
    return np.tanh(0.9 * a + 0.1)


def mix(a, b):
    return np.sin(a) * np.cos(b)


def apply(matrix, vector):
    return np.dot(matrix, vector) / len(vector)


def outer(u, v):
    return np.outer(np.tanh(u), v)


def energy(a):
    return np.sum(a * a) / (1.0 + np.size(a))


def lengths(matrix, axis=0, scale=1.0):
    return np.sqrt(1.0 + np.sum(scale * matrix * matrix, axis=axis))


def ring(v):
    return np.concatenate([v[1:], v[:1]]) * v


def corners(v):
    return v[np.array([0, -1, 0])]


def parts(a):
    return {"half": 0.5 * a, "size": a.size, "wave": np.sum(np.sin(a))}


def circle(a):
    return np.cos(a), np.sin(a)


def gather(tree, weight=1.0):
    return weight * np.tanh(np.mean(tree["x"])) + sum([np.sum(entry) for entry in tree["rest"]]) / 9


def join(tree):
    return tree["half"] * np.cos(tree["wave"]) / tree["size"]


def transpose(matrix):
    return matrix.T


def backwards(v):
    return v[::-1]


def slope(a):
    return autograd.elementwise_grad(np.tanh)(a)


def leak(a):
    return np.where(a > 0.0, a, 0.1 * a)


def steps_only(a):
    """Piecewise constant: nothing arrives at its input."""
    return np.floor(3.0 * a) + 0.5


def affine(tree, a):
    return tree["b"] * a + np.sum(tree["w"]) * np.mean(tree["q"][1])


def wave(item, a):
    return np.sin(item * a)


def bump(item, a):
    return np.sum(np.exp(-item * item) * np.cos(item + a))


def both(item, a):
    return {"wave": np.sin(item + a), "sum": np.sum(item * a)}


def bumps(items, a):
    return sum([bump(item, a) for item in items])


# ---------------------------------------------------------------------------- two languages


class Plain:
    def call(self, fun, *args, **kwargs):
        return fun(*args, **kwargs)

    def sum(self, values):
        return optree.tree_map(lambda *leaves: sum(leaves), *values)

    def map_sum(self, fun, items, *shared, grainsize):
        return self.sum([fun(item, *shared) for item in items])

    def reduce_sum(self, fun, items, *shared, grainsize):
        return fun(items, *shared)


class Daskgrad:
    def call(self, fun, *args, **kwargs):
        return dg.delayed(fun)(*args, **kwargs)

    sum = staticmethod(dg.sum)
    map_sum = staticmethod(dg.map_sum)
    reduce_sum = staticmethod(dg.reduce_sum)


PLAIN, DASKGRAD = Plain(), Daskgrad()


# ------------------------------------------------------------- the steps: what they take and do


def array(value, taken):
    return isinstance(value, np.ndarray | np.floating)


def vector(value, taken):
    return array(value, taken) and np.ndim(value) == 1


def matrix(value, taken):
    return array(value, taken) and np.ndim(value) == 2


def scalar(value, taken):
    return array(value, taken) and np.ndim(value) == 0


def like(value, taken):
    """Of the shape of the value before."""
    return array(value, taken) and np.shape(value) == np.shape(taken[-1])


def factor(value, taken):
    """What can be broadcast with the value before."""
    return scalar(value, taken) or like(value, taken)


def columns(value, taken):
    return vector(value, taken) and len(value) == np.shape(taken[-1])[1]


def half(value, taken):
    return isinstance(value, dict) and "half" in value


def waves(value, taken):
    return isinstance(value, dict) and set(value) == {"wave", "sum"}


def pair(value, taken):
    return isinstance(value, tuple)


def whole(value, taken):
    return isinstance(value, dict) and "q" in value


class Rule(NamedTuple):
    takes: tuple[Callable, ...]
    do: Callable[..., Any]  # (language, number, *values): number is drawn, for whatever varies

    def starts_with(self, value):
        return self.takes[0](value, [])


def model(fun, *takes):
    return Rule(takes, lambda language, number, *values: language.call(fun, *values))


def numpy_of(fun, *takes):
    return Rule(takes, lambda language, number, *values: fun(*values))


def items(number):
    return [0.3 * k - 0.8 for k in range(1 + number % 11)], 1 + number % 5


def over_items(kind, fun):
    def do(language, number, a):
        numbers, grainsize = items(number)
        return getattr(language, kind)(fun, numbers, a, grainsize=grainsize)

    return do


RULES = {
    "squash": model(squash, array),
    "mix": model(mix, array, factor),
    "apply": model(apply, matrix, columns),
    "outer": model(outer, vector, vector),
    "energy": model(energy, array),
    "lengths": Rule(
        (matrix, scalar), lambda m, n, a, s: m.call(lengths, a, axis=n % 2, scale=s * s)
    ),
    "ring": model(ring, vector),
    "corners": model(corners, vector),
    "parts": model(parts, array),
    "circle": model(circle, array),
    "gather": Rule(
        (array, array, scalar),
        lambda m, n, a, b, c: m.call(gather, {"x": a, "rest": [b, (c, a)[n % 2]]}, weight=c),
    ),
    "join": model(join, half),
    "transpose": model(transpose, matrix),
    "backwards": model(backwards, vector),
    "slope": model(slope, array),
    "leak": model(leak, array),
    "steps only": model(steps_only, array),
    "affine": model(affine, whole, array),
    "NumPy: squash": numpy_of(squash, array),
    "NumPy: mix": numpy_of(mix, array, factor),
    "NumPy: outer": numpy_of(outer, vector, vector),
    "NumPy: lengths": numpy_of(lengths, matrix),
    "NumPy: ring": numpy_of(ring, vector),
    "NumPy: transpose": numpy_of(transpose, matrix),
    "+": Rule((array, factor), lambda m, n, a, b: a + b),
    "-": Rule((array, factor), lambda m, n, a, b: (n % 3 + 0.5) - a - b),
    "*": Rule((array, factor), lambda m, n, a, b: 0.5 * a * b),
    "/": Rule((array, factor), lambda m, n, a, b: a / (2.0 + b**2)),
    "neg": Rule((array,), lambda m, n, a: -a),
    "@": Rule((matrix, columns), lambda m, n, a, b: a @ b * 0.5),
    "entry": Rule((vector,), lambda m, n, a: a[-1]),
    "slice": Rule((vector,), lambda m, n, a: a[n % 2 :: 2] if n % 2 == 0 else a[:1]),
    "row": Rule((matrix,), lambda m, n, a: a[0]),
    "item": Rule((half,), lambda m, n, a: a[("half", "wave")[n % 2]]),
    "wave": Rule((waves,), lambda m, n, a: a["wave"] * a["sum"] * 0.1),
    "first": Rule((pair,), lambda m, n, a: a[n % 2]),
    "sum": Rule((array, like, like), lambda m, n, a, b, c: m.sum([a, b, a, c, a, b][: n % 5 + 2])),
    "sum of trees": Rule((half,), lambda m, n, a: m.sum([a["half"], a["half"]])),
    "map_sum of arrays": Rule((array,), over_items("map_sum", wave)),
    "map_sum of scalars": Rule((array,), over_items("map_sum", bump)),
    "map_sum of trees": Rule((array,), over_items("map_sum", both)),
    "map_sum over nodes": Rule(
        (array, factor), lambda m, n, a, b: m.map_sum(wave, [a, b, a], a, grainsize=1 + n % 2)
    ),
    "reduce_sum": Rule((array,), over_items("reduce_sum", bumps)),
}


class Step(NamedTuple):
    """A rule, the numbers of the earlier values that it takes, and a number for what varies."""

    rule: str
    takes: tuple[int, ...]
    number: int


class Program(NamedTuple):
    """Arguments, steps, and the numbers of the values whose energies are the output."""

    arguments: tuple
    steps: tuple[Step, ...]
    output: tuple[int, ...]

    def __call__(self, *arguments, language=DASKGRAD):
        values = start(*arguments)
        for step in self.steps:
            values.append(do(step, values, language))
        return language.sum([language.call(energy, values[number]) for number in self.output])

    def plain(self, *arguments):
        return self(*arguments, language=PLAIN)


def start(x, y, p):
    return [x, y, p, p["w"], p["b"], p["q"][0], p["q"][1]]


def do(step, values, language):
    return RULES[step.rule].do(language, step.number, *[values[number] for number in step.takes])


@st.composite
def programs(draw):
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    arguments = point(draw(st.integers(0, 10_000)), rows, length)
    values, steps = start(*arguments), []
    for _ in range(draw(st.integers(3, 14))):
        possible = [name for name, rule in RULES.items() if any(map(rule.starts_with, values))]
        name = draw(st.sampled_from(sorted(possible)[::-1]))
        taken = draw_inputs(draw, RULES[name], values)
        if taken is not None:
            steps.append(Step(name, taken, draw(st.integers(0, 20))))
            values.append(do(steps[-1], values, PLAIN))
    arrays = [number for number, value in enumerate(values) if array(value, ())]
    output = draw(st.lists(st.sampled_from(arrays), min_size=1, max_size=4))
    return Program(arguments, tuple(steps), (*output, arrays[-1]))


def draw_inputs(draw, rule, values):
    """The numbers of values that the rule takes, of which the late ones come first; or None."""
    numbers: list[int] = []
    for accepts in rule.takes:
        taken = [values[number] for number in numbers]
        fit = [number for number, value in enumerate(values) if accepts(value, taken)]
        if not fit:
            return None
        numbers.append(draw(st.sampled_from(fit[::-1])))
    return tuple(numbers)


def point(seed, rows, length):
    random = np.random.default_rng(seed)

    def drawn(*shape):
        return random.uniform(-1.5, 1.5, shape)

    tree = {"w": drawn(length), "b": drawn(1)[0], "q": (drawn(length), drawn(rows, length))}
    return drawn(length), drawn(rows, length), tree


# ---------------------------------------------------------------------------- the reference


def flat(tree):
    """The float leaves of a pytree as one vector."""
    leaves = [leaf for leaf in optree.tree_leaves(tree) if not isinstance(leaf, int)]
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def shaped(vector, tree):
    """A vector's entries in the place of the float leaves of a pytree."""
    leaves, structure = optree.tree_flatten(tree)
    end, taken = 0, []
    for leaf in leaves:
        if isinstance(leaf, int):
            taken.append(leaf)
        else:
            begin, end = end, end + math.prod(np.shape(leaf))
            taken.append(np.reshape(vector[begin:end], np.shape(leaf)))
    return optree.tree_unflatten(structure, taken)


def reference(program):
    """The gradient of the plain program by plain autograd, as one vector."""
    return autograd.grad(lambda v: program.plain(*shaped(v, program.arguments)))(
        flat(program.arguments)
    )


def error(program, gradients):
    """The largest error of a gradient, in parts of its largest entry, or of one."""
    right = reference(program)
    return np.max(np.abs(flat(gradients) - right)) / max(1.0, np.max(np.abs(right)))
