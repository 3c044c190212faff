"""Bundle adjustment and a kinematic chain, after ADBench (Šrajer, Kukelova, Fitzgibbon 2018)."""

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

# ---------------------------- hand tracking, simplified: a finger's bones, each in the last's frame

VERTICES = drawn(60, 2, 3)
MEASURED = [drawn(61 + i, 2, 3) for i in range(3)]
BONE = np.array([0.0, 0.0, 1.2])


def euler(angles):
    x, y, z = angles[0], angles[1], angles[2]
    one, zero = 1.0, 0.0
    about_x = [[one, zero, zero], [zero, np.cos(x), -np.sin(x)], [zero, np.sin(x), np.cos(x)]]
    about_y = [[np.cos(y), zero, np.sin(y)], [zero, one, zero], [-np.sin(y), zero, np.cos(y)]]
    about_z = [[np.cos(z), -np.sin(z), zero], [np.sin(z), np.cos(z), zero], [zero, zero, one]]
    return np.array(about_z) @ np.array(about_y) @ np.array(about_x)


@dg.delayed
def wrist(angles, origin):
    return {"turn": euler(angles), "origin": origin}


@dg.delayed
def attach(frame, angles):
    turn = np.matmul(frame["turn"], euler(angles))
    return {"turn": turn, "origin": frame["origin"] + np.dot(turn, BONE)}


@dg.delayed
def vertex_errors(frame, scale, measured):
    placed = np.tensordot(scale * VERTICES, frame["turn"], axes=(1, 1)) + frame["origin"]
    return np.ravel(measured - placed)


def hand_tracking(pose, scale):
    frame, errors = wrist(pose["wrist"], pose["origin"]), []
    for bend, measured in zip(pose["bends"], MEASURED, strict=True):
        frame = attach(frame, bend)
        errors.append(vertex_errors(frame, scale, measured))
    return tuple(errors)


POSE = {
    "wrist": 0.4 * drawn(64, 3),
    "origin": 0.2 * drawn(65, 3),
    "bends": [0.3 * drawn(66 + i, 3) for i in range(3)],
}

PROBLEMS = (
    vector(bundle_adjustment, [camera(51), camera(54)], DEPTHS, np.array([0.9, 1.1, 0.8, 1.2])),
    vector(hand_tracking, POSE, 0.9),
)
