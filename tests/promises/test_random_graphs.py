"""Random programs: gradients are plain autograd's, other derivatives obey the laws."""

import autograd
import autograd.numpy as np
import optree
import programs
import pytest
from hypothesis import HealthCheck, given, settings
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from programs import Program, Step

import daskgrad as dg

pytestmark = [
    pytest.mark.usefixtures("synchronous"),
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on:UserWarning"),
    pytest.mark.filterwarnings("ignore:Output seems independent of input:UserWarning"),
    pytest.mark.filterwarnings(  # threads of a cluster draw while a strategy does
        "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

EXACT = 1e-11  # of the largest entry of a gradient


def for_random_programs(check, count):
    setting = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    setting(given(programs.programs())(check))()


def gradient(program):
    return dg.value_and_grad(program, argnums=(0, 1, 2))(*program.arguments)


def like(tree, random):
    return optree.tree_map(lambda leaf: random.standard_normal(np.shape(leaf))[()], tree)


def directions(program, count):
    random = np.random.default_rng(0)
    return [like(program.arguments, random) for _ in range(count)]


def inner(first, second):
    return np.dot(programs.flat(first), programs.flat(second))


def magnitude(first, second):
    """What the rounding error of an inner product is relative to."""
    return np.dot(np.abs(programs.flat(first)), np.abs(programs.flat(second)))


def close(first, second, scale, bound=1e-12):
    return abs(first - second) <= bound * max(1.0, scale)


# -------------------------------------------------------------------------------- the checks


def require_autograds_gradient(program):
    value, gradients = gradient(program)
    plain = program.plain(*program.arguments)
    assert close(value, plain, abs(plain))
    assert programs.error(program, gradients) <= EXACT


def require_transposes(program):
    """Of the program with all its outputs side by side, not added up."""

    def fun(*arguments):
        values = programs.start(*arguments)
        for step in program.steps:
            values.append(programs.do(step, values, programs.DASKGRAD))
        return {"values": [values[number] for number in program.output]}

    (direction,) = directions(program, 1)
    value, tangent = dg.jvp(fun, program.arguments, direction)
    again, pullback = dg.vjp(fun, *program.arguments)
    assert_array_equal(programs.flat(value), programs.flat(again))
    cotangent = like(value, np.random.default_rng(1))
    pulled = pullback(cotangent)
    size = magnitude(tangent, cotangent) + magnitude(pulled, direction)
    assert close(inner(tangent, cotangent), inner(direction, pulled), size)


def product_by_autograd(program, direction):
    """The Hessian-vector product of the plain program, reverse over reverse, as one vector."""

    def plain(vector):
        return program.plain(*programs.shaped(vector, program.arguments))

    along = programs.flat(direction)
    return autograd.grad(lambda v: np.dot(autograd.grad(plain)(v), along))(
        programs.flat(program.arguments)
    )


def require_autograds_symmetric_hessian(program):
    primals = program.arguments
    one, other = directions(program, 2)
    _, gradients = gradient(program)
    again, products = dg.hvp(program, primals, one)
    _, others = dg.hvp(program, primals, other)
    _, tangent = dg.jvp(program, primals, one)
    expected = product_by_autograd(program, one)
    scale = max(np.max(np.abs(expected)), np.max(np.abs(programs.flat(gradients))))
    assert_allclose(programs.flat(again), programs.flat(gradients), 1e-12, 1e-12 * scale)
    assert_allclose(programs.flat(products), expected, 1e-9, 1e-10 * max(1.0, scale))
    size = magnitude(products, other) + magnitude(others, one)
    assert close(inner(products, other), inner(others, one), size, 1e-10)
    assert close(tangent, inner(gradients, one), magnitude(gradients, one))


CHECKS = {  # and how many programs, in short and at length
    require_autograds_gradient: (25, 400),
    require_transposes: (15, 100),
    require_autograds_symmetric_hessian: (15, 100),
}
SHORT = [(check, few) for check, (few, _) in CHECKS.items()]
LONG = [(check, many) for check, (_, many) in CHECKS.items()]


@in_short(("check", "count"), SHORT + LONG, *SHORT)
def test_random_programs(check, count):
    for_random_programs(check, count)


# ------------------------------------------------------------------------------ rule by rule

TAKES = {
    "apply": (1, 0),
    "lengths": (1, 4),
    "gather": (0, 1, 4),
    "join": (7,),
    "affine": (2, 1),
    "sum": (0, 3, 5),
    "outer": (0, 3),
    "transpose": (1,),
    "@": (1, 3),
    "row": (6,),
    "item": (7,),
    "sum of trees": (7,),
    "wave": (8,),
    "first": (9,),
    "mix": (0, 4),
    "map_sum over nodes": (5, 4),
}


@pytest.mark.parametrize("name", sorted(programs.RULES))
@in_short("number", [0, 1, 7], 0)
def test_every_rule_of_the_random_programs_alone(name, number):
    """The random programs cannot be right because a rule never occurs."""
    start = [Step("parts", (0,), 0), Step("map_sum of trees", (0,), 3), Step("circle", (1,), 0)]
    default = (0,) if len(programs.RULES[name].takes) == 1 else (0, 5)
    steps = (*start, Step(name, TAKES.get(name, default), number))
    output = (len(steps) + 6,)
    if name in ("parts", "map_sum of trees", "circle"):
        follower = {"parts": "join", "circle": "first"}.get(name, "wave")
        steps, output = (*steps, Step(follower, (len(steps) + 6,), 1)), (len(steps) + 7,)
    program = Program(programs.point(3, 2, 3), steps, output)
    for check in CHECKS:
        check(program)


def test_the_measure_finds_a_gradient_that_is_off_by_a_part_in_a_billion():
    program = Program(programs.point(0, 2, 3), (Step("squash", (0,), 0),), (7,))
    _, gradients = gradient(program)
    wrong = (gradients[0] * (1 + 1e-9), *gradients[1:])
    assert programs.error(program, wrong) > 10 * EXACT
