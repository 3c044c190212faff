"""Population pharmacokinetics: from the concentrations of 120 patients to a table of estimates.

Each patient takes three doses, at times of its own, and gives six samples. A drug is absorbed and
cleared at rates that differ from patient to patient: clearance and volume are lognormal, with two
random effects each patient, which ``dg.laplace`` integrates out. Samples below the limit of the
assay are censored: only that they are below is known. ``flat.fit`` maximises the sum of the
patients' marginal log likelihoods.

    pip install "daskgrad[examples,nutpie]"
    python examples/pharmacokinetics.py            # 120 patients
    python examples/pharmacokinetics.py --quick    # 24 patients

NUTS draws parameters and effects together, from a density with a wide prior. The script exits with
an error if an estimate is more than four standard errors from the truth, if the profile's interval
of the clearance does not hold its estimate, or if the mean of NUTS's draws of a parameter is more
than a standard error from its estimate.
"""

import argparse
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

import daskgrad as dg

LIMIT = 0.4  # of the assay, in mg/l
TRUTH = {
    "clearance": np.log(4.0),  # l/h, as logarithms; so are the others
    "volume": np.log(40.0),  # l
    "absorption": np.log(1.2),  # 1/h
    "spread_clearance": np.log(0.3),
    "spread_volume": np.log(0.25),
    "error": np.log(0.2),
}
START = {name: value + 0.3 for name, value in TRUTH.items()}


class Patient(NamedTuple):
    """Times in hours, doses in mg, logarithms of concentrations, and which samples are censored."""

    dosed: np.ndarray
    doses: np.ndarray
    sampled: np.ndarray
    logs: np.ndarray
    are_censored: np.ndarray


def log_concentrations(b: Any, patient: Patient, p: dict[str, Any]) -> Any:
    """One compartment with first-order absorption: doses add up."""
    clearance = np.exp(p["clearance"] + np.exp(p["spread_clearance"]) * b[0])
    volume = np.exp(p["volume"] + np.exp(p["spread_volume"]) * b[1])
    absorption, elimination = np.exp(p["absorption"]), clearance / volume
    since = patient.sampled[:, None] - patient.dosed
    passed = np.where(since > 0.0, since, 0.0)
    shape = np.exp(-elimination * passed) - np.exp(-absorption * passed)
    scale = absorption / (volume * (absorption - elimination))
    return np.log(np.sum(patient.doses * scale * shape, axis=1) + 1e-12)


def joint(b: Any, patient: Patient, p: dict[str, Any]) -> Any:
    """The log density of a patient's samples and effects."""
    error = np.exp(p["error"])
    predicted = log_concentrations(b, patient, p)
    seen = -0.5 * ((patient.logs - predicted) / error) ** 2 - p["error"] - 0.5 * np.log(2 * np.pi)
    below = log_ndtr((np.log(LIMIT) - predicted) / error)
    prior = -0.5 * np.sum(b**2) - np.log(2 * np.pi)
    return np.sum(np.where(patient.are_censored, below, seen)) + prior


def simulated(number: int) -> Patient:
    random = np.random.default_rng((3, number))
    dosed = np.array([0.0, 12.0, 24.0]) + random.uniform(-1.0, 1.0, 3)
    doses = random.choice([50.0, 100.0, 150.0], 3)
    sampled = np.sort(random.uniform(1.5, 40.0, 6))
    empty = np.zeros(6)
    patient = Patient(dosed, doses, sampled, empty, empty > 1.0)
    logs = log_concentrations(random.normal(size=2), patient, TRUTH)
    logs = logs + np.exp(TRUTH["error"]) * random.normal(size=6)
    are_censored = logs < np.log(LIMIT)
    return patient._replace(logs=np.where(are_censored, 0.0, logs), are_censored=are_censored)


def drawn(patients: list[Patient], p: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws of the parameters, from two chains of NUTS that begin near p."""

    def term(pair: Any, shared: dict[str, Any]) -> Any:
        b, patient = pair
        return joint(b, patient, shared)

    def log_prior(shared: dict[str, Any]) -> Any:
        return -0.5 * sum([(shared[name] - centre) ** 2 for name, centre in START.items()])

    prior = dg.delayed(log_prior)

    def log_density(point: dict[str, Any]) -> Any:
        pairs = dg.zip(point["effects"], patients)
        return dg.map_sum(term, pairs, point["shared"]) + prior(point["shared"])

    start = {"effects": np.zeros((len(patients), 2)), "shared": p}
    settings = {"draws": 150, "tune": 150, "chains": 2, "seed": 0, "progress_bar": False}
    with np.errstate(all="ignore"):  # first steps go far
        posterior = dg.adapters.sample(log_density, start, **settings).posterior
    return {name: posterior[f"shared.{name}"].to_numpy().ravel() for name in p}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="24 patients")
    count = 24 if parser.parse_args().quick else 120
    patients = [simulated(number) for number in range(count)]
    censored = np.mean([patient.are_censored for patient in patients])
    print(f"{count} patients, {6 * count} samples, {censored:.0%} below the limit")

    marginal = dg.laplace(joint, np.zeros(2))
    flat, *_ = dg.adapters.flat(
        lambda p: -dg.map_sum(marginal, patients, p), START, scale=dict.fromkeys(START, 0.2)
    )
    begin = time.perf_counter()
    fit = flat.fit()
    print(fit)
    low, high = fit.profile("clearance").interval
    print(
        f"clearance: {low:.3f} to {high:.3f}, by its profile; {time.perf_counter() - begin:.0f} s"
    )

    truth = np.array([TRUTH[name] for name in fit.names])
    distance = np.max(np.abs(fit.estimates - truth) / fit.errors)
    print(f"from the truth: at most {distance:.1f} standard errors")
    draws = drawn(patients, fit.parameters)
    means = np.array([np.mean(draws[name]) for name in fit.names])
    gap = np.max(np.abs(means - fit.estimates) / fit.errors)
    print(f"means of NUTS's draws: at most {gap:.1f} standard errors from the estimates")
    estimate = fit.estimates[fit.names.index("clearance")]
    return int(not (distance < 4.0 and low < estimate < high and gap < 1.0))


if __name__ == "__main__":
    sys.exit(main())
