"""Palette: the colours of models and stages, in pages, reports, progress and pictures.

A model has a hue, by its name, and a stage a shade of it: forward light, backward dark. The hues
are taken from Okabe and Ito's, and from Tol's, which stay apart for the colour-blind.
"""

import zlib

HUES = (
    *("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#6B6B6B"),
    *("#56B4E9", "#882255", "#117733", "#332288", "#CC6677", "#8B5A2B"),
)
SHADES = {  # how much white (> 0) or black (< 0) is mixed into a hue
    "value": 0.72,
    "forward": 0.45,
    "tangent": 0.20,
    "call": 0.0,
    "backward": -0.25,
    "cotangent": -0.50,
}
INK = "#7B7B7B"  # reads equally well on white and on black


def shade(number: int, stage: str) -> str:
    """The colour of a stage of the model with this number."""
    amount = SHADES[stage]
    target = 255 if amount > 0 else 0
    hue = channels(HUES[number % len(HUES)])
    mixed = [round(channel + (target - channel) * abs(amount)) for channel in hue]
    return "#{:02X}{:02X}{:02X}".format(*mixed)


def hue_of(model: str, hues: dict[str, int]) -> int:
    """The number of a model's hue, which ``hues`` gets: by its name in keys, or the next that no
    other model has, as long as there is one."""
    if model not in hues:
        first = zlib.crc32(model.encode()) % len(HUES)
        order = [*range(first, len(HUES)), *range(first)]
        hues[model] = next((n for n in order if n not in hues.values()), first)
    return hues[model]


def channels(colour: str) -> list[int]:
    """Red, green and blue of a colour, up to 255."""
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
