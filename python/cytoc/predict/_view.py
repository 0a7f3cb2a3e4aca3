# SPDX-License-Identifier: Apache-2.0
"""An image as a network sees it, [C, spatial..], read by regions: one position of it, a coarser level of that, or what the cache has."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .. import tiling

Array = np.ndarray[Any, Any]


class View:
    """A position of an image as [C, spatial..], in numbers for the network: sliced like an array, read by regions."""

    def __init__(self, image: Any, order: Sequence[Optional[int]], place: Dict[int, int], channels: Optional[Sequence[int]], dtype: Any) -> None:
        self.image, self.order, self.place, self.channels, self.dtype = image, list(order), place, channels, np.dtype(dtype)
        c = order[0]
        count = len(channels) if channels is not None else image.shape[c] if c is not None else 1
        self.shape = (count,) + tuple(image.shape[k] for k in order[1:] if k is not None)
        self.constants: Optional[Tuple[Array, Array]] = None

    def raw(self, key: Tuple[slice, ...]) -> Array:
        """[C, spatial..] of a region, as stored."""
        whole: List[Any] = [slice(None)] * len(self.image.shape)
        for axis, at in self.place.items():
            whole[axis] = slice(at, at + 1)
        for where, part in zip(self.order[1:], key[1:]):
            if where is not None:
                whole[where] = part
        c = self.order[0]
        if c is not None and self.channels is not None:
            whole[c] = slice(min(self.channels), max(self.channels) + 1)
        found = self.image.shared(tuple(whole))
        axes = [k for k in self.order if k is not None]
        found = np.transpose(found, axes + [k for k in range(found.ndim) if k not in axes])
        found = found.reshape(found.shape[:len(axes)]) if c is not None else found.reshape((1,) + found.shape[:len(axes)])
        if c is not None and self.channels is not None:
            found = found[[k - min(self.channels) for k in self.channels]]
        region: Array = found[key[0]]
        return region

    def __getitem__(self, key: Any) -> Array:
        parts = key if isinstance(key, tuple) else (key,)
        found = self.raw(tuple(parts) + (slice(None),) * (len(self.shape) - len(parts)))
        if self.constants is not None:
            shift, scale = self.constants
            if shift.any():
                found = np.subtract(found, shift, dtype=np.float32)
            found = np.divide(found, scale, dtype=np.float32)
        return found.astype(self.dtype, copy=False)


class Raw:
    """A view without its numbers for the network: what statistics are made of."""

    def __init__(self, view: View) -> None:
        self.view, self.shape, self.dtype = view, view.shape, view.image.dtype

    def __getitem__(self, key: Any) -> Array:
        return self.view.raw(tuple(key) + (slice(None),) * (len(self.shape) - len(key)))


class Shrunk:
    """A coarser level of a view: means over blocks, of the region that is asked for."""

    def __init__(self, view: Any, factor: Sequence[int]) -> None:
        self.view, self.factor, self.dtype = view, tuple(factor), view.dtype
        self.shape = view.shape[:1] + tuple(-(-n // f) for n, f in zip(view.shape[1:], factor))

    def __getitem__(self, key: Any) -> Array:
        fine = [slice(k.start * f, min(k.stop * f, n)) for k, f, n in zip(key[1:], self.factor, self.view.shape[1:])]
        return tiling.shrink(self.view[(key[0], *fine)], self.factor).astype(self.dtype, copy=False)


class Ready:
    """A position of an array that the cache has."""

    def __init__(self, array: Any, position: int) -> None:
        self.array, self.position, self.shape, self.dtype = array, position, array.shape[1:], array.dtype

    def __getitem__(self, key: Any) -> Array:
        parts = key if isinstance(key, tuple) else (key,)
        return self.array[(self.position,) + tuple(parts)]  # type: ignore[no-any-return]
