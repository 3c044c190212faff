"""Programs of models with complex numbers: the bits of the tape, by lines of their own."""

import autograd.numpy as anp
import numpy as np
import pytest

from daskgrad.backends.autograd.reverse import trace
from daskgrad.compiled.recording import record
from daskgrad.compiled.signatures import are_same
from daskgrad.compiled.writing import write

WAVES = np.exp(1j * np.linspace(0.0, 5.0, 12)).reshape(3, 4)
MODELS = {
    "a transform": lambda x: np.abs(np.fft.fft(x)) ** 2,
    "an inverse transform": lambda x: np.real(np.fft.ifft(x * WAVES)),
    "a filter": lambda x: np.real(np.fft.ifft(np.fft.fft(x) * WAVES)),
    "parts": lambda x: np.real(x * WAVES) * np.imag(WAVES * x),
    "arithmetic": lambda x: np.abs((x + WAVES) * (x * WAVES - x) + WAVES),
    "an exponential": lambda x: np.imag(np.exp(x * WAVES)),
    "a conjugate": lambda x: np.real(np.conj(x * WAVES) * (x + WAVES)),
    "sizes at zero": lambda x: np.abs((x - x) * WAVES) + np.abs(x * WAVES),
}


def program_of(fun, x):
    return write(record(fun, [x], [True]), "model", [0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_the_tape(name, random):
    def fun(x):
        return [MODELS[name](x)]

    x = random.standard_normal((3, 4))
    program = program_of(fun, x)
    for number in (None, 0.0, -0.0, 1e300, np.inf, np.nan):
        at = x.copy()
        if number is not None:
            at[0, 1] = number
        outputs, tape = trace(fun, [at])
        found, residuals = program.forward(at)
        assert are_same(found, outputs)
        assert are_same(program.pull_examples(residuals), tape.pull(program.examples))


@pytest.mark.parametrize("name", MODELS)
def test_programs_have_lines_of_their_own(name, random):
    """No pullback of the tape's is called."""
    program = program_of(lambda x: [anp.sum(MODELS[name](x))], random.standard_normal((3, 4)))
    assert "pullback_of" not in program.source


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: np.abs(np.fft.fft(x, 6)),
        lambda x: np.real(np.fft.fft(x, axis=0, norm="ortho")),
        lambda x: np.real(np.fft.fft2(x)),
        lambda x: np.real(x * (1.0 + 2.0j)) + np.imag(np.sum(x * WAVES, axis=0)),
        lambda x: np.real(x[:1] * WAVES),
        lambda x: np.real(WAVES / x),
    ],
)
def test_other_calls_have_the_bits_of_the_tape(fun, random):
    x = random.standard_normal((3, 4))
    program = program_of(lambda x: [fun(x)], x)
    outputs, tape = trace(lambda x: [fun(x)], [x])
    found, residuals = program.forward(x)
    assert are_same(found, outputs)
    assert are_same(program.pull_examples(residuals), tape.pull(program.examples))
