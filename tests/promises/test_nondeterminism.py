"""Models that are not deterministic and run again: an error that names them, no wrong gradient.

A forward task runs again when its worker is killed; its first value may have been used elsewhere.
"""

import contextlib
import functools
import os
import random
import signal
import threading

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import whole_again
from dask.task_spec import DataNode
from lengths import in_short
from numpy.testing import assert_array_equal
from policies import Never, moving, under
from probes import gated_back
from waiting import Gate, wait_until

import daskgrad as dg
from daskgrad import NondeterministicModelError
from daskgrad.autodiff.models.pullbacks import add_cotangents
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.trees import flatten

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

X = np.linspace(0.1, 1.0, 4)


# -------------------------------------------------------------------------- models that draw


def from_numpys_state(x, _):
    return x * numpy.random.normal()


def from_pythons_state(x, _):
    return x * random.random()


def from_a_generator(x, generator):
    return x * generator.normal()


def from_a_seed(x, seed):
    return x * numpy.random.default_rng(seed).normal()


ARGUMENTS = {
    from_numpys_state: lambda: None,
    from_pythons_state: lambda: None,
    from_a_generator: lambda: dg.random.generators(7, 1)[0],
    from_a_seed: lambda: 7,
}
WRONG = [from_numpys_state, from_pythons_state]
RIGHT = [from_a_generator, from_a_seed]


@dg.delayed
def summed(y):
    return np.sum(np.tanh(y))


# ------------------------------------------------------------------------ a trace is repeated


def drawn_once(draw):
    return dg.grad(lambda x: summed(dg.delayed(draw)(x, ARGUMENTS[draw]())))(X)


@pytest.mark.parametrize("draw", WRONG)
def test_a_model_that_is_traced_again_and_draws_other_numbers_is_an_error(draw):
    with (
        dask.config.set(scheduler=moving),
        under(Never()),
        pytest.raises(NondeterministicModelError, match=f"'{draw.__name__}' is not deterministic"),
    ):
        drawn_once(draw)


@pytest.mark.parametrize("draw", RIGHT)
def test_a_model_that_is_traced_again_and_draws_the_same_numbers_is_right(draw):
    with dask.config.set(scheduler="sync"):
        expected = drawn_once(draw)
    with dask.config.set(scheduler=moving), under(Never()):
        assert_array_equal(drawn_once(draw), expected)


@pytest.mark.parametrize("draw", WRONG)
def test_terms_that_are_traced_again_and_draw_other_numbers_are_an_error(draw):
    def term(item, x):
        return draw(item * x, None)

    with (
        dask.config.set(scheduler=moving),
        under(Never()),
        pytest.raises(NondeterministicModelError, match="'term' is not deterministic"),
    ):
        dg.grad(lambda x: summed(dg.map_sum(term, [1.0, 2.0], x)))(X)


# -------------------------------------------------------------------------- a worker is killed


class Fate:
    """The first worker runs the models that draw; it is killed in the backward pass of the second.

    ``consume`` is the model of the second worker: it has used the values, and its pullback waits
    until the first worker is dead.
    """

    def __init__(self, client, path):
        self._client, self._gate = client, Gate(path)
        whole_again(client)
        self.first, self.second = client.ncores()
        self._pid = client.run(os.getpid, workers=[self.first])[self.first]
        self._others = set(client.has_what()[self.second])  # what is kept of another test's calls

    def on_first(self):
        return dask.annotate(workers=[self.first], allow_other_workers=True)

    def on_second(self):
        return dask.annotate(workers=[self.second], allow_other_workers=True)

    def consume(self, *values):
        gate = self._gate

        def consumer(*values):
            return np.sum(gated_back(np.tanh(sum(values)), gate))

        with self.on_second():
            return dg.delayed(consumer)(*values)

    def gradient(self, objective, argnums=0, args=(X,)):
        killer = threading.Thread(target=self._kill_in_time)
        killer.start()
        try:
            return dg.value_and_grad(objective, argnums)(*args)
        finally:
            killer.join()

    def _kill_in_time(self):
        try:
            ((_, pid),) = self._gate.wait_for()
            if pid != self._pid:
                self.kill()
        finally:
            self._gate.open()

    def kill(self):
        """Kills the first worker, which alone has the models that drew."""
        here = {str(key[0]) for key in set(self._client.has_what()[self.second]) - self._others}
        assert not any(key.startswith(("forward-from-", "forward-term-")) for key in here)
        os.kill(self._pid, signal.SIGKILL)
        wait_until(lambda: self.first not in self._client.ncores())
        self.is_killed = True

    is_killed = False


class Undisturbed:
    def on_first(self):
        return contextlib.nullcontext()

    on_second = on_first

    def consume(self, *values):
        return dg.delayed(lambda *values: np.sum(np.tanh(sum(values))), name="consumer")(*values)

    def kill(self):
        pass

    def gradient(self, objective, argnums=0, args=(X,)):
        return dg.value_and_grad(objective, argnums)(*args)


@pytest.fixture
def fate(frail, tmp_path):
    """Nobody moves tasks or results meanwhile, as Dask does now and then."""

    def moving(method, dask_scheduler):
        getattr(dask_scheduler.periodic_callbacks["stealing"], method)()
        getattr(dask_scheduler.extensions["amm"], method)()

    frail.run_on_scheduler(moving, "stop")
    yield Fate(frail, tmp_path / "gate")
    frail.run_on_scheduler(moving, "start")


def consumed(build):
    """A case whose values, of a function that draws, the second worker consumes."""

    @functools.wraps(build)
    def case(fate, draw):
        def drawn(x):
            return dg.delayed(draw)(x, ARGUMENTS[draw]())

        return fate.gradient(lambda x: fate.consume(*build(fate, drawn, x)))

    return case


@consumed
def a_call(fate, drawn, x):
    with fate.on_first():
        return [drawn(x)]


@consumed
def several_consumers(fate, drawn, x):
    """One of them is lost with the model that draws, and sees the second value."""
    with fate.on_first():
        y = drawn(x)
        return [y, dg.delayed(np.sin)(y)]


@consumed
def a_sum_of_nodes(fate, drawn, x):
    with fate.on_first():
        return [dg.sum([drawn(x * number) for number in (1.0, 2.0)])]


@consumed
def a_sum_that_is_not_lost(fate, drawn, x):
    """The second worker has the sum, and the first one the terms."""
    with fate.on_first():
        terms = [drawn(x * number) for number in (1.0, 2.0)]
    with fate.on_second():
        return [dg.sum(terms)]


def of_items(fate, draw, rows, x, of=lambda term: term, summation="pairwise", **how):
    def term(item, x, generator):
        return of(np.sin(item * draw(x, generator)))

    with fate.on_first():
        model = dg.delayed(term, **how)
        options = {"grainsize": 1, "summation": summation}
        return fate.consume(dg.map_sum(model, rows, x, ARGUMENTS[draw](), **options))


def a_sum_of_numbers(fate, draw, **how):
    return fate.gradient(lambda x: of_items(fate, draw, [1.0, 2.0, 3.0], x, np.sum, **how))


def a_fused_sum(fate, draw):
    return a_sum_of_numbers(fate, draw, keep="gradient")


def a_sum_of_arrays(fate, draw, **how):
    return fate.gradient(lambda x: of_items(fate, draw, [1.0, 2.0, 3.0], x, **how))


def a_compensated_sum(fate, draw):
    return a_sum_of_arrays(fate, draw, summation="compensated")


def items(fate, draw):
    rows = numpy.arange(12.0).reshape(3, 4)
    return fate.gradient(lambda rows, x: of_items(fate, draw, rows, x), (0, 1), (rows, X))


def a_held_pullback(fate, draw):
    """The caller has the value, and the worker is killed between the passes."""
    with fate.on_first():
        value, pullback = dg.vjp(lambda x: dg.delayed(draw)(x, ARGUMENTS[draw]()), X)
    fate.kill()
    return value, pullback(np.ones(4))[0]


CASES = [
    a_call,
    several_consumers,
    a_sum_of_nodes,
    a_sum_that_is_not_lost,
    a_sum_of_numbers,
    a_fused_sum,
    a_sum_of_arrays,
    a_compensated_sum,
    items,
    a_held_pullback,
]


DRAWN_ANEW = [*[(case, from_numpys_state) for case in CASES], (a_call, from_pythons_state)]
DRAWN_AGAIN = [*[(case, from_a_generator) for case in CASES], (a_call, from_a_seed)]


@in_short(("case", "draw"), DRAWN_ANEW, DRAWN_ANEW[0], (a_held_pullback, from_numpys_state))
def test_a_model_that_draws_other_numbers_after_a_kill_is_an_error(case, draw, fate):
    with pytest.raises(NondeterministicModelError, match=f"'({draw.__name__}|term)'"):
        case(fate, draw)
    assert fate.is_killed


def losing(graph, keys, lost=("forward", "value"), **_):
    """A scheduler in this thread that runs what draws once more, when all consumers have run."""
    tasks = dict(graph.__dask_graph__())
    words = {key: key[0].split("-") for key in tasks}  # its stage, and those of its model's name
    forward = [key for key, (stage, *_) in words.items() if stage in ("forward", "value")]
    drawn = [key for key in forward if words[key][0] in lost and {"from", "term"} & {*words[key]}]
    kept = [key for key in forward if key not in drawn]
    values = dask.local.get_sync(tasks, kept)
    held = {key: DataNode(key, value) for key, value in zip(kept, values, strict=True)}
    return dask.local.get_sync({**tasks, **held}, keys)


@pytest.mark.parametrize("case", [case for case in CASES if case is not a_held_pullback])
def test_a_model_that_draws_other_numbers_after_a_loss_is_an_error(case):
    with (
        dask.config.set(scheduler=losing),
        pytest.raises(NondeterministicModelError, match=r"'(from_numpys_state|term)'"),
    ):
        case(Undisturbed(), from_numpys_state)


def test_an_output_is_compared_with_the_value_that_was_returned():
    model = dg.delayed(lambda x: np.sum(from_numpys_state(x, None)), name="from state")
    with (
        dask.config.set(scheduler=functools.partial(losing, lost=("forward",))),
        pytest.raises(NondeterministicModelError, match="'from state' is not deterministic"),
    ):
        dg.value_and_grad(lambda x: model(x))(X)


@in_short(("case", "draw"), DRAWN_AGAIN, (several_consumers, from_a_generator))
def test_a_model_that_draws_the_same_numbers_after_a_kill_is_right(case, draw, fate):
    with dask.config.set(scheduler="sync"):
        expected = case(Undisturbed(), draw)
    results = case(fate, draw)
    assert fate.is_killed
    for leaf, other in zip(flatten(results)[0], flatten(expected)[0], strict=True):
        assert_array_equal(leaf, other)


def test_the_consumers_of_a_value_that_saw_different_ones_are_told_whose_it_was():
    def cotangent(seen):
        return Cotangent((np.ones(1),), fingerprint([np.array([seen])]))

    with pytest.raises(
        NondeterministicModelError,
        match=r"model 'piece' is not deterministic: .*saw different values",
    ):
        add_cotangents([cotangent(1.0), cotangent(2.0)], (True, True), name="piece")
