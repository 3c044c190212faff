"""Bundle adjustment, after ADBench (Šrajer, Kukelova, Fitzgibbon 2018)."""

import autograd.numpy as np

import daskgrad as dg
from problems.problem import drawn, vector

# -------------------------------------------- bundle adjustment: cameras and points that are shared

SEEN = ((0, 0), (0, 1), (1, 1), (1, 2))
FEATURES = drawn(50, 4, 2)


def rotated(axis, point):
    """Rodrigues' formula; the rotation's angle is the axis's length."""
    angle = np.sqrt(np.sum(axis**2))
    unit = axis / angle
    across = np.cross(unit, point)
    along = unit * np.dot(unit, point) * (1.0 - np.cos(angle))
    return point * np.cos(angle) + across * np.sin(angle) + along


@dg.delayed
def reprojection(camera, point, weight, feature):
    x = rotated(camera["axis"], point - camera["centre"])
    flat = x[:2] / x[2]
    square = np.sum(flat**2)
    bent = flat * (1.0 + camera["radial"][0] * square + camera["radial"][1] * square**2)
    return weight * (camera["focal"] * bent + camera["principal"] - feature)


@dg.delayed
def weight_error(weights):
    return 1.0 - weights**2


def bundle_adjustment(cameras, points, weights):
    errors = [
        reprojection(cameras[c], points[p], weights[i], FEATURES[i])
        for i, (c, p) in enumerate(SEEN)
    ]
    return {"reprojection": errors, "weight": weight_error(weights)}


def camera(seed):
    return {
        "axis": np.array([0.3, -0.2, 0.5]) + 0.1 * drawn(seed, 3),
        "centre": 0.2 * drawn(seed + 1, 3),
        "focal": np.float64(1.3),
        "principal": 0.1 * drawn(seed + 2, 2),
        "radial": np.array([0.05, -0.01]),
    }


DEPTHS = [np.array([0.3, 0.2, 4.0]), np.array([-0.5, 0.4, 3.0]), np.array([0.1, -0.6, 3.5])]

PROBLEMS = (
    vector(bundle_adjustment, [camera(51), camera(54)], DEPTHS, np.array([0.9, 1.1, 0.8, 1.2])),
)
