"""The example of an inversion against deepwave, whose waves and adjoint are written by hand."""

import numpy as np
import pytest
import waveform

import daskgrad as dg

STEPS = 240  # until an echo of the sponge, which is another one there, may arrive
ROWS = np.arange(20, 80, 6)


@pytest.mark.optional
def test_traces_and_gradient_of_a_shot_are_those_of_deepwave(monkeypatch):
    deepwave = pytest.importorskip("deepwave")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(waveform, "STEPS", STEPS)
    true, start, _ = waveform.media()
    columns = np.full(len(ROWS), 70)
    shot = waveform.Shot((50, 50), ROWS, columns, np.zeros((STEPS, len(ROWS))))
    shot = shot._replace(data=waveform.traces([shot], true)[0])
    model = dg.delayed(waveform.misfit)
    value, gradient = dg.value_and_grad(lambda speed: model(shot, speed))(start)

    def heard(speed):
        """The source acts a step later there, and is on the other side of the equation."""
        amplitude = torch.zeros(1, 1, STEPS + 1, dtype=torch.float64)
        amplitude[0, 0, :-1] = torch.tensor(-waveform.ricker(STEPS) / waveform.CELL**2)
        result = deepwave.scalar(
            speed * waveform.UNIT,
            waveform.CELL,
            waveform.STEP,
            source_amplitudes=amplitude,
            source_locations=torch.tensor([[list(shot.source)]]),
            receiver_locations=torch.tensor(np.stack([ROWS, columns], axis=1))[None],
            pml_width=waveform.SPONGE,
            pml_freq=waveform.FREQUENCY,
        )
        return result[-1][0].T[1:]

    recorded = heard(torch.tensor(true)).numpy()
    assert np.linalg.norm(recorded - shot.data) < 1e-8 * np.linalg.norm(recorded)
    speed = torch.tensor(start, requires_grad=True)
    theirs = 0.5 * torch.sum((heard(speed) - torch.tensor(shot.data)) ** 2)
    theirs.backward()
    assert value == pytest.approx(theirs.item(), rel=1e-6)
    assert np.linalg.norm(speed.grad.numpy() - gradient) < 1e-8 * np.linalg.norm(gradient)
