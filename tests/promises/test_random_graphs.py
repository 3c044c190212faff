"""Random programs against plain autograd of the same program, on every scheduler."""

import autograd.numpy as np
import dask
import programs
import pytest
from hypothesis import HealthCheck, given, settings
from programs import Program, Step

import daskgrad as dg

pytestmark = [
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on:UserWarning"),
    pytest.mark.filterwarnings("ignore:Output seems independent of input:UserWarning"),
    pytest.mark.filterwarnings(  # threads of a cluster draw while a strategy does
        "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

EXACT = 1e-12  # of the sum of the contributions' magnitudes: see ``programs.magnitude``

with_fixture = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def gradient(program):
    return dg.value_and_grad(program, argnums=(0, 1, 2))(*program.arguments)


def require_right(program):
    value, gradients = gradient(program)
    plain = program.plain(*program.arguments)
    assert abs(value - plain) <= EXACT * max(1.0, abs(plain))
    assert programs.difference(program, gradients) <= EXACT


@settings(max_examples=40, **with_fixture)
@given(programs.programs())
def test_the_gradient_is_plain_autograds(program):
    with dask.config.set(scheduler="sync"):
        require_right(program)


@pytest.mark.long
@settings(max_examples=400, **with_fixture)
@given(programs.programs())
def test_the_gradient_is_plain_autograds_at_length(program):
    with dask.config.set(scheduler="sync"):
        require_right(program)


@pytest.mark.long
@settings(max_examples=25, **with_fixture)
@given(program=programs.programs())
def test_the_gradient_is_plain_autograds_on_every_scheduler(scheduler, program):
    require_right(program)


def require_same_bits(program, every_scheduler):
    results = every_scheduler(lambda: as_bytes(gradient(program)))
    assert len(set(results.values())) == 1


@settings(max_examples=6, **with_fixture)
@given(program=programs.programs())
def test_every_scheduler_gives_the_same_bits(every_scheduler, program):
    require_same_bits(program, every_scheduler)


@pytest.mark.long
@settings(max_examples=20, **with_fixture)
@given(program=programs.programs())
def test_every_scheduler_gives_the_same_bits_at_length(every_scheduler, program):
    require_same_bits(program, every_scheduler)


def as_bytes(result):
    value, gradients = result
    return np.asarray(value).tobytes() + programs.flat(gradients).tobytes()


EVERY_RULE = [
    (name, takes)
    for name, takes in {
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
    }.items()
]


@pytest.mark.parametrize("name", sorted(programs.RULES))
@pytest.mark.parametrize(
    "number", [0, *[pytest.param(number, marks=pytest.mark.long) for number in (1, 7)]]
)
def test_every_rule_of_the_random_programs_alone(name, number):
    """The random programs cannot be right because a rule never occurs."""
    start = [Step("parts", (0,), 0), Step("map_sum of trees", (0,), 3), Step("circle", (1,), 0)]
    default = (0,) if len(programs.RULES[name].takes) == 1 else (0, 5)
    steps = (*start, Step(name, dict(EVERY_RULE).get(name, default), number))
    output = (len(steps) + 6,)
    if name in ("parts", "map_sum of trees", "circle"):
        follower = {"parts": "join", "circle": "first"}.get(name, "wave")
        steps, output = (*steps, Step(follower, (len(steps) + 6,), 1)), (len(steps) + 7,)
    require_right(Program(programs.point(3, 2, 3), steps, output))


def test_the_measure_finds_a_gradient_that_is_off_by_a_part_in_a_billion():
    program = Program(programs.point(0, 2, 3), (Step("squash", (0,), 0),), (7,))
    _, gradients = gradient(program)
    assert programs.difference(program, gradients) <= EXACT
    wrong = (gradients[0] * (1 + 1e-9), *gradients[1:])
    assert programs.difference(program, wrong) > 100 * EXACT


def test_the_measure_allows_for_cancellation_and_no_more():
    """x - x cancels: the error may be 1e-12 of what was added, not of the zero that is left."""
    program = Program(
        programs.point(0, 1, 1),
        (Step("-", (0, 0), 0), Step("+", (7, 0), 0), Step("+", (8, 0), 0)),
        (9,),
    )
    assert np.all(programs.magnitude(program)[:1] >= np.abs(programs.reference(program)[:1]))
    assert np.all(programs.magnitude(program)[1:] == 0.0)
