# SPDX-License-Identifier: Apache-2.0
"""NIfTI by nibabel: .nii is mapped, .nii.gz is unpacked into a temporary file first. The affine and units of the input go to the output.

A file's array is x, y, z, t, c with x next to each other in memory: as rows of ours, [c, t,] z, y, x.
"""
from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from typing import Any, Dict, Sequence

import numpy as np

from ._base import Array, FormatError, Image, MappedWriter, PlainImage, Scale, Writer, library, reserve

_UNITS = {"mm": "millimeter", "micron": "micrometer", "meter": "meter", "sec": "second", "msec": "millisecond", "usec": "microsecond"}
_NAMES = {ours: theirs for theirs, ours in _UNITS.items()}


def open_nifti(path: str) -> Image:
    nibabel = library("nibabel", "volumes", path)
    unpacked = _unpack(path) if path.lower().endswith(".gz") else None
    try:
        loaded = nibabel.load(unpacked or path)
        found = _image(path, loaded)
    except (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError, ValueError, OSError) as e:
        raise FormatError("'%s': not a NIfTI file that can be read: %s" % (path, e)) from None
    finally:
        if unpacked:
            os.remove(unpacked)  # who has it open keeps it
    return found


def _unpack(path: str) -> str:
    handle, name = tempfile.mkstemp(suffix=".nii", prefix="cytoc-")
    try:
        with os.fdopen(handle, "wb") as to, gzip.open(path) as f:
            shutil.copyfileobj(f, to, 1 << 20)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        os.remove(name)
        raise FormatError("'%s' is truncated or no gzip file: %s" % (path, e)) from None
    except BaseException:
        os.remove(name)
        raise
    return name


class _ScaledImage(Image):
    """Whose numbers are to be multiplied and shifted: float32."""

    def __init__(self, stored: Image, slope: float, shift: float) -> None:
        super().__init__(stored.path, stored.shape, np.float32, stored.axes, stored.scale, stored.extra)
        self.stored, self.slope, self.shift = stored, np.float64(slope), np.float64(shift)

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        return (self.stored.read(start, stop) * self.slope + self.shift).astype(np.float32)

    def close(self) -> None:
        self.stored.close()


def _image(path: str, loaded: Any) -> Image:
    header, proxy = loaded.header, loaded.dataobj
    shape = tuple(loaded.shape)
    dtype = header.get_data_dtype()
    if dtype.kind not in "iuf":
        raise FormatError("'%s': expected numbers, found %s" % (path, dtype))
    space, time = header.get_xyzt_units()
    axes = {1: "X", 2: "YX", 3: "ZYX", 4: ("T" if time != "unknown" else "C") + "ZYX", 5: "CTZYX"}.get(len(shape))
    if axes is None:
        raise FormatError("'%s': expected 1 to 5 axes, found %d" % (path, len(shape)))
    scale: Scale = {}
    for letter, step in zip("XYZT", header.get_zooms()):
        if letter in axes and (letter != "T" or time != "unknown"):
            unit = time if letter == "T" else space
            scale[letter] = (float(step), _UNITS.get(unit, ""))
    slope, shift = proxy.slope, proxy.inter
    file = proxy.file_like if isinstance(proxy.file_like, str) else proxy.file_like.name
    extra = {"nifti_header": header.copy(), "affine": loaded.affine}
    stored = PlainImage(path, proxy.offset, shape[::-1], dtype, axes, scale, extra, file)
    return stored if (slope, shift) in ((1.0, 0.0), (None, None)) else _ScaledImage(stored, slope, shift)


class _NiftiWriter(MappedWriter):
    """In the order of ours; `to` puts axes where NIfTI has them."""

    def __init__(self, path: str, array: Any, axes: str, to: Sequence[int], packed: str) -> None:
        super().__init__(path, array, axes)
        self.to, self.packed = list(to), packed

    def write(self, start: Sequence[int], part: Array) -> None:
        super().write([start[k] for k in self.to], np.transpose(part, self.to))

    def close(self) -> None:
        super().close()
        if self.packed:
            with open(self.path, "rb") as f, open(self.packed, "wb") as out, gzip.GzipFile("", "wb", 4, out, 0) as to:
                shutil.copyfileobj(f, to, 1 << 20)
            os.replace(self.packed, self.path)


def create_nifti(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    nibabel = library("nibabel", "volumes", path)
    dtype = np.dtype(np.uint8) if np.dtype(dtype) == np.bool_ else np.dtype(dtype)
    order = [axes.index(letter) for letter in "CTZYX" if letter in axes]
    # three spatial axes; then time, or one of channels
    letters = [axes[k] for k in order]
    by = {letter: shape[axes.index(letter)] for letter in axes}
    sizes = [by.get(letter, 1) for letter in "XYZ"]
    if "T" in by or "C" in by:
        sizes += [by["T"] if "T" in by else by["C"]] + ([by["C"]] if "T" in by and "C" in by else [])
    header = nibabel.Nifti1Header() if max(sizes) < 1 << 15 else nibabel.Nifti2Header()
    header.set_data_shape(sizes)
    header.set_data_dtype(dtype)
    given = extra.get("nifti_header")
    if given is not None:
        header.set_sform(given.get_sform(), int(given["sform_code"]))
        header.set_qform(given.get_qform(), int(given["qform_code"]))
    zooms = [scale.get(letter, (1.0, ""))[0] for letter in "XYZ"]
    zooms += [scale.get("T", (1.0, ""))[0] if "T" in by else 1.0][:len(sizes) - 3] + [1.0] * (len(sizes) - 4)
    header.set_zooms(zooms[:len(sizes)])
    space = next((_NAMES[u] for _, u in (scale.get(a, (0, "")) for a in "XYZ") if u in _NAMES), "mm")
    header.set_xyzt_units(space, _NAMES.get(scale.get("T", (0, ""))[1], "sec") if "T" in by else "unknown")
    if given is None:
        header.set_sform(np.diag(zooms[:3] + [1.0]), 1)
    header["vox_offset"] = header.single_vox_offset
    header["magic"] = header.single_magic
    with open(path, "wb") as f:
        header.write_to(f)
        f.write(bytes(header.single_vox_offset - f.tell()))
    reserve(path, header.single_vox_offset + int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize)
    array = np.memmap(path, dtype, "r+", header.single_vox_offset, tuple(by[letter] for letter in letters))
    return _NiftiWriter(path, array, axes, order, path + ".gz" if extra.get("packed") else "")
