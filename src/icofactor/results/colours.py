"""Colours of maps and parcels in files, page and figures, also for colour-blind readers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icofactor.io.freesurfer import UNKNOWN

SEQUENTIAL = ("viridis", "cividis", "inferno", "gray")
# Okabe & Ito's colours and three more, which colour-blind readers can tell apart; no grey, which is
# cortex without a colour.
_DISTINCT = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
    "#332288",
    "#882255",
    "#44aa99",
)
# Hues a golden angle apart, in turns, differ as long as possible.
_GOLDEN = 0.6180339887
# Colours that are made at once, until there are enough.
_BATCH = 300


def ramp(name: str) -> NDArray[np.uint8]:
    """Return the (256, 3) colours of a map: one of matplotlib's, or "diverging"."""
    if name == "diverging":
        return diverging()
    from matplotlib import colormaps

    return np.round(255 * colormaps[name](np.linspace(0, 1, 256))[:, :3]).astype(np.uint8)


def diverging() -> NDArray[np.uint8]:
    """Return (256, 3) colours from blue over light grey to orange-brown, even in lightness."""
    t = np.linspace(-1, 1, 256)
    lightness = 95 - 60 * np.abs(t)
    hue = np.deg2rad(np.where(t < 0, 281, 50))
    # No more than screens have: clipped colours would jump.
    chroma = np.where(t < 0, 45, 52) * np.abs(t) ** 0.9
    return _srgb(lightness, chroma * np.cos(hue), chroma * np.sin(hue))


def distinct_colours(n: int) -> NDArray[np.uint8]:
    """Return the colours (n, 3) of n parcels, all different, without FreeSurfer's "unknown".

    A parcel keeps its colour however many there are: the first ten have those above, the others
    hues by the golden angle in three lightnesses.
    """
    distinct = {tuple(bytes.fromhex(colour[1:])): None for colour in _DISTINCT}
    batch = 0
    # Rounded to bytes, some of very many colours are equal.
    while len(distinct) < n:
        number = np.arange(_BATCH * batch, _BATCH * (batch + 1))
        hue = 2 * np.pi * np.mod(0.07 + _GOLDEN * number, 1)
        lightness = np.array([68.0, 48.0, 84.0])[number % 3] - batch
        colours = _srgb(lightness, 46 * np.cos(hue), 46 * np.sin(hue)).tolist()
        distinct |= dict.fromkeys(colour for colour in map(tuple, colours) if colour != UNKNOWN)
        batch += 1
    return np.array(list(distinct)[:n], dtype=np.uint8).reshape(n, 3)


def _srgb(
    L: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return CIELAB colours (D65) as sRGB bytes, clipped to those of a screen."""
    y = (L + 16) / 116
    f = np.stack([y + a / 500, y, y - b / 200], axis=-1)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * [0.95047, 1.0, 1.08883]
    to_rgb = np.array(
        [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]]
    )
    linear = np.clip(xyz @ to_rgb.T, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.round(255 * encoded).astype(np.uint8)
