"""Fourier transforms, real in and real out, and convolutions."""

import autograd.numpy as np
import autograd.scipy.signal

import daskgrad as dg
from problems.problem import drawn, scalar, vector

# --------------------------------------------------------------------------- a power spectrum


@dg.delayed
def windowed(signal, width):
    times = np.arange(len(signal)) - 0.5 * len(signal)
    return signal * np.exp(-0.5 * (times / width) ** 2)


@dg.delayed
def transform(signal):
    return np.fft.rfft(signal)


@dg.delayed
def power(waves):
    return np.real(waves * np.conj(waves))


def power_spectrum(signal, width):
    return power(transform(windowed(signal, width)))


# --------------------------------------------------- a blurred signal, found again: a penalised fit

BLUR = np.exp(-0.3 * np.fft.fftfreq(6, 1.0 / 6.0) ** 2)
BLURRED = drawn(100, 6)


@dg.delayed
def blurred(signal):
    return np.real(np.fft.ifft(BLUR * np.fft.fft(signal)))


@dg.delayed
def misfit(signal, log_scale):
    return np.sum((signal - BLURRED) ** 2) * np.exp(-log_scale) + log_scale


@dg.delayed
def variation(signal):
    return np.sum(np.sqrt(0.01 + np.diff(signal) ** 2))


def deblurring(signal, log_scale):
    return misfit(blurred(signal), log_scale) + variation(signal)


# ------------------------------------------------------------------------------------ convolutions


@dg.delayed
def convolved(signal, kernel):
    return autograd.scipy.signal.convolve(signal, kernel, mode="valid")


@dg.delayed
def rectified(signal, bias):
    return np.maximum(signal + bias, 0.0) + 0.1 * signal**2


def convolution(signal, first, second, bias):
    return convolved(rectified(convolved(signal, first), bias), second)


PROBLEMS = (
    vector(power_spectrum, drawn(101, 6), 2.0),
    scalar(deblurring, drawn(102, 6), 0.3),
    vector(convolution, drawn(103, 8), drawn(104, 3), drawn(105, 2), 0.2),
)
