# SPDX-License-Identifier: Apache-2.0
"""PNG, JPEG and their like by imageio and Pillow: read and written as a whole."""
from __future__ import annotations

from typing import Any, Dict, Sequence

import numpy as np

from ._base import ArrayImage, FormatError, Image, Scale, WholeWriter, Writer, library


def open_picture(path: str) -> Image:
    library("PIL", "images", path)
    imageio = library("imageio.v3", "images", path)
    try:
        array = np.asarray(imageio.imread(path, index=0))
    except Exception as e:  # of Pillow, by format
        raise FormatError("'%s': not a picture that can be read: %s" % (path, str(e).splitlines()[0] if str(e) else type(e).__name__)) from None
    return ArrayImage(path, array, "YX" if array.ndim == 2 else "YXC")


class _PictureWriter(WholeWriter):
    def close(self) -> None:
        import imageio.v3 as imageio
        array = self.array
        if "C" in self.axes:
            array = np.moveaxis(array, self.axes.index("C"), -1)
            array = array[..., 0] if array.shape[-1] == 1 else array
        imageio.imwrite(self.path, array, extension=self.suffix)

    suffix = ".png"


def create_picture(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    library("imageio.v3", "images", path)
    suffix, dtype = extra.get("suffix", ".png"), np.dtype(dtype)
    dtype = np.dtype(np.uint8) if dtype == np.bool_ else dtype
    right = (np.dtype(np.uint8),) + ((np.dtype(np.uint16),) if suffix == ".png" else ())
    channels = shape[axes.index("C")] if "C" in axes else 1
    if set(axes) - set("YXC") or channels not in (1, 3, 4) or dtype not in right or dtype != np.uint8 and channels > 1:
        raise FormatError("'%s': a picture has axes Y, X, 1, 3 or 4 channels and %s, found axes %s of %s, %s; choose another --format or "
                          "--dtype" % (path, " or ".join(map(str, right)), axes, list(shape), dtype))
    writer = _PictureWriter(path, shape, dtype, axes)
    writer.suffix = suffix
    return writer
