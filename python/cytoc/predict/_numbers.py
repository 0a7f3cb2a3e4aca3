# SPDX-License-Identifier: Apache-2.0
"""What happens to numbers before the network, and after it: --normalize, --mean, --std; --activation, --argmax, --threshold, --dtype."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError

Array = np.ndarray[Any, Any]
NORMALIZING = ("none", "unit", "minmax", "zscore", "percentile")
ACTIVATIONS = ("none", "sigmoid", "softmax")
SAMPLES = 1 << 20          # voxels that percentiles are taken from
PERCENTILES = (1.0, 99.8)
BLOCK = 16 << 20           # bytes of the image that statistics read at once


class Before(NamedTuple):
    """(x - shift) / scale, for each channel."""
    normalize: str = "none"
    mean: Tuple[float, ...] = ()
    std: Tuple[float, ...] = ()

    def constants(self, image: Any) -> Optional[Tuple[Array, Array]]:
        """shift and scale, [channels, 1..], for an image [channels, spatial..] whose numbers are as they are stored; None: nothing to do."""
        n, ones = image.shape[0], (1,) * (len(image.shape) - 1)
        shift, scale = np.zeros(n), np.ones(n)
        if self.normalize == "unit" and image.dtype.kind in "iub":
            scale[:] = float(np.iinfo(image.dtype).max) if image.dtype.kind != "b" else 1.0
        elif self.normalize in ("minmax", "zscore", "percentile"):
            shift, scale = _measured(image, self.normalize)
        for name, values in (("--mean", self.mean), ("--std", self.std)):
            if len(values) not in (0, 1, n):
                raise InputError("%s: expected 1 or %d numbers, one for each channel, found %d" % (name, n, len(values)))
        if self.mean:
            shift = shift + scale * np.asarray(self.mean)
        if self.std:
            scale = scale * np.asarray(self.std)
        if not shift.any() and (scale == 1).all():
            return None
        return (np.broadcast_to(shift, n).astype(np.float32).reshape((-1,) + ones),
                np.where(scale == 0, 1, np.broadcast_to(scale, n)).astype(np.float32).reshape((-1,) + ones))


def _blocks(image: Any) -> Any:
    """The image by rows of its first axis of space."""
    row = max(int(np.prod(image.shape[:1] + image.shape[2:])) * 8, 1)
    n = max(BLOCK // row, 1)
    for k in range(0, image.shape[1], n):
        yield image[:, k:k + n]


def _measured(image: Any, kind: str) -> Tuple[Array, Array]:
    n, voxels = image.shape[0], int(np.prod(image.shape[1:]))
    sums, squares, kept = np.zeros(n), np.zeros(n), []
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    stride = max(voxels // SAMPLES, 1)
    for block in _blocks(image):
        flat = np.asarray(block, np.float64).reshape(n, -1)
        sums += flat.sum(1)
        squares += np.square(flat).sum(1)
        low, high = np.minimum(low, flat.min(1)), np.maximum(high, flat.max(1))
        kept.append(flat[:, ::stride])
    if kind == "percentile":
        low, high = np.percentile(np.concatenate(kept, 1), PERCENTILES, axis=1)
    if kind == "zscore":
        mean = sums / voxels
        return mean, np.sqrt(np.maximum(squares / voxels - mean * mean, 0))
    return low, high - low


class After(NamedTuple):
    """What is made of the blended result, [channels.., rows.., rest..] in float32."""
    activation: str = "none"
    argmax: bool = False
    threshold: Optional[float] = None
    dtype: Optional[str] = None

    def result_type(self) -> np.dtype[Any]:
        return np.dtype(self.dtype or ("uint8" if self.argmax or self.threshold is not None else "float32"))

    def decides(self) -> Union[None, str, float]:
        """What tiling.Blender can do of it: "argmax", or a threshold; None: the rest is for __call__()."""
        if self.activation != "none" or self.result_type() != np.uint8:
            return None
        return "argmax" if self.argmax else self.threshold

    def lead(self, lead: Sequence[int]) -> Tuple[int, ...]:
        """Leading axes of the result, for those of the network's output."""
        if (self.argmax or self.activation == "softmax") and not lead:
            raise InputError("--argmax and softmax go over channels, and the network's output has none")
        return () if self.argmax else tuple(lead)

    def __call__(self, rows: Array) -> Array:
        if self.activation == "sigmoid":
            with np.errstate(over="ignore"):
                np.reciprocal(np.add(np.exp(np.negative(rows, out=rows), out=rows), np.float32(1), out=rows), out=rows)
        elif self.activation == "softmax":
            np.exp(np.subtract(rows, rows.max(0, keepdims=True), out=rows), out=rows)
            np.divide(rows, rows.sum(0, keepdims=True), out=rows)
        if self.argmax:
            labels: Array = rows.argmax(0).astype(self.result_type())
            return labels
        if self.threshold is not None:
            return (rows > np.float32(self.threshold)).astype(self.result_type())
        dtype = self.result_type()
        if dtype.kind in "iu":  # rounded, and held to what the type has
            limits = np.iinfo(dtype)
            most = np.float32(limits.max) if limits.max < 1 << 24 else np.nextafter(np.float32(limits.max), np.float32(0))
            np.clip(np.rint(rows, out=rows), np.float32(limits.min), most, out=rows)
        found: Array = rows.astype(dtype, copy=False)
        return found
