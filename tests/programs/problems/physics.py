"""Sums over pairs, legs and sources."""

import autograd.numpy as np

import daskgrad as dg
from problems.problem import drawn, scalar, vector

# ------------------------------------------------------------------ the energy of Lennard and Jones

CORNERS = np.array([[0.0, 0, 0], [1.1, 0, 0], [0, 1.2, 0], [0, 0, 1.3], [1.0, 1.0, 1.0]])
PAIRS = np.array([(i, j) for i in range(5) for j in range(i)])


def pair_energies(pairs, atoms, depth):
    squares = np.sum((atoms[pairs[:, 0]] - atoms[pairs[:, 1]]) ** 2, axis=1)
    return np.sum(4.0 * depth * (squares**-6 - squares**-3))


def lennard_jones(atoms, depth):
    return dg.reduce_sum(pair_energies, PAIRS, atoms, depth, grainsize=3)


# ----------------------------- the same kind of energy with a loop over the neighbours in each term


def neighbour_energy(other, atom, charge):
    return charge[0] * charge[1] / np.sqrt(0.1 + np.sum((atom - other) ** 2))


def atom_energy(item, charges):
    number, atom = item
    others = [other for i, other in enumerate(CORNERS) if i != number]
    return dg.map_sum(neighbour_energy, others, atom, charges)


def coulomb(atoms, charges):
    items = dg.zip(list(range(5)), atoms)
    return dg.map_sum(atom_energy, items, charges, grainsize=2)


# ----------------------------------------------------------------------- the length of a round tour


@dg.delayed
def leg(start, end):
    return np.linalg.norm(end - start)


def tour_length(cities):
    stops = list(cities)
    return dg.sum([leg(a, b) for a, b in zip(stops, [*stops[1:], stops[0]], strict=True)])


# ------------------------------------------------- the field of several masses, a sum of vectors


def attraction(source, probe, softening):
    mass, place = source
    apart = place - probe
    return mass * apart / (softening + np.sum(apart**2)) ** 1.5


def gravity(masses, probe, softening):
    places = list(CORNERS)
    return dg.map_sum(attraction, dg.zip(masses, places), probe, softening, grainsize=2)


@dg.delayed
def leapfrog(probe, speed, force):
    return {"place": probe + 0.1 * speed, "speed": speed + 0.1 * force}


def fall(masses, probe, speed):
    """Two steps in the field: sums of vectors that later sums depend on."""
    for _ in range(2):
        state = leapfrog(probe, speed, gravity(masses, probe, 0.3))
        probe, speed = state["place"], state["speed"]
    return probe, speed


PROBLEMS = (
    scalar(lennard_jones, CORNERS, 0.8, kind="sum"),
    scalar(coulomb, CORNERS + 0.3, np.array([0.5, -1.2]), kind="sum"),
    scalar(tour_length, [drawn(90 + i, 2) for i in range(5)]),
    vector(fall, 1.0 + 0.1 * drawn(95, 5), 0.5 * drawn(96, 3), 0.5 * drawn(97, 3), kind="sum"),
)
