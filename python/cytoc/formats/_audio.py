# SPDX-License-Identifier: Apache-2.0
"""WAV, FLAC and others by soundfile: [channels, samples], float32 between -1 and 1; only the samples asked for are read."""
from __future__ import annotations

import threading
from typing import Any, Dict, Sequence

import numpy as np

from ._base import Array, FormatError, Image, Scale, Writer, library
from ._whole import check_riff

DEFAULT_RATE = 16000


class _AudioImage(Image):
    def __init__(self, path: str, f: Any) -> None:
        super().__init__(path, (f.channels, f.frames), np.float32, "CT", {"T": (1 / f.samplerate, "second")}, {"rate": f.samplerate})
        self.file, self.lock = f, threading.Lock()

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        with self.lock:
            try:
                self.file.seek(start[1])
                found = self.file.read(stop[1] - start[1], "float32", always_2d=True)
            except RuntimeError as e:
                raise FormatError("'%s': cannot be decoded: %s" % (self.path, e)) from None
        if len(found) != stop[1] - start[1]:
            raise FormatError("'%s' is truncated: it says that it has %d samples, and ends at %d" %
                              (self.path, self.shape[1], start[1] + len(found)))
        return np.ascontiguousarray(found.T[start[0]:stop[0]])

    def close(self) -> None:
        self.file.close()


def open_audio(path: str) -> Image:
    soundfile = library("soundfile", "audio", path)
    try:
        file = soundfile.SoundFile(path)
        check_riff(path)
        return _AudioImage(path, file)
    except RuntimeError as e:
        raise FormatError("'%s': not a recording that can be read: %s" % (path, e)) from None


class _AudioWriter(Writer):
    """Samples come in order, all channels of them at once."""

    def __init__(self, path: str, shape: Sequence[int], axes: str, f: Any) -> None:
        super().__init__(path, shape, np.float32, axes)
        self.file, self.next = f, 0

    def write(self, start: Sequence[int], part: Array) -> None:
        time = self.axes.index("T")
        if start[time] != self.next:
            raise FormatError("'%s': samples have to come in order: expected those from %d on, found %d" % (self.path, self.next, start[time]))
        self.file.write(part.T if time == part.ndim - 1 and part.ndim == 2 else part)
        self.next += part.shape[time]

    def close(self) -> None:
        self.file.close()

    abandon = close


def create_audio(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    soundfile = library("soundfile", "audio", path)
    if axes not in ("T", "CT") or np.dtype(dtype) != np.float32:
        raise FormatError("'%s': a recording has axes C and T, of float32, found %s of %s, %s; choose another --format" %
                          (path, axes, list(shape), np.dtype(dtype)))
    rate = int(extra.get("rate") or DEFAULT_RATE)
    kind = {".flac": ("FLAC", "PCM_24"), ".ogg": ("OGG", "VORBIS")}.get(extra.get("suffix", ".wav"), ("WAV", "FLOAT"))
    f = soundfile.SoundFile(path, "w", rate, shape[0] if axes == "CT" else 1, kind[1], format=kind[0])
    return _AudioWriter(path, shape, axes, f)
