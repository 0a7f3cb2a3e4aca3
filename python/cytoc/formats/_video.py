# SPDX-License-Identifier: Apache-2.0
"""Frames of videos by PyAV: [frames, y, x, channels], uint8 in RGB. Frames are decoded in order; going back decodes from the beginning."""
from __future__ import annotations

import threading
from fractions import Fraction
from typing import Any, Dict, Optional, Sequence

import numpy as np

from ._base import Array, FormatError, Image, Scale, Writer, library
from ._whole import check_matroska, check_riff


class _VideoImage(Image):
    def __init__(self, path: str, av: Any) -> None:
        self.av, self.lock = av, threading.Lock()
        self.container: Any = None
        self.last: Optional[Array] = None
        self.file = path
        check_riff(path)
        check_matroska(path)
        frames, rate = self._count()
        self._restart()
        self.last = self._decode(frames)
        super().__init__(path, (frames,) + self.last.shape, np.uint8, "TYXC", {"T": (float(1 / rate), "second")} if rate else {},
                         {"fps": rate})

    def _count(self) -> Any:
        with self.av.open(self.file) as container:
            if not container.streams.video:
                raise FormatError("'%s' has no video in it" % self.file)
            stream = container.streams.video[0]
            n = stream.frames or sum(1 for packet in container.demux(stream) if packet.size)
            return n, stream.average_rate

    def _restart(self) -> None:
        """Frames from the first on."""
        if self.container is not None:
            self.container.close()
        self.container = self.av.open(self.file)
        self.container.streams.video[0].thread_type = "NONE"  # cores are for the network
        self.frames, self.next, self.last = self.container.decode(video=0), 0, None

    def _decode(self, of: Any) -> Array:
        try:
            frame = next(self.frames)
        except (StopIteration, self.av.error.FFmpegError):
            raise FormatError("'%s' is truncated: expected %s frames, found %d that can be decoded" % (self.file, of, self.next)) from None
        self.next += 1
        found: Array = frame.to_ndarray(format="rgb24")
        return found

    def _frame(self, number: int) -> Array:
        if number < self.next - 1:
            self._restart()
        while self.last is None or self.next <= number:
            self.last = self._decode(self.shape[0])
        return self.last

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        inner = tuple(slice(a, b) for a, b in zip(start[1:], stop[1:]))
        with self.lock:
            return np.stack([self._frame(k)[inner] for k in range(start[0], stop[0])])

    def close(self) -> None:
        self.container.close()


def open_video(path: str) -> Image:
    av = library("av", "video", path)
    try:
        return _VideoImage(path, av)
    except av.error.FFmpegError as e:
        raise FormatError("'%s': not a video that can be read: %s" % (path, e)) from None


class _VideoWriter(Writer):
    """Frames in order, each as a whole."""

    def __init__(self, path: str, shape: Sequence[int], axes: str, av: Any, extra: Dict[str, Any]) -> None:
        super().__init__(path, shape, np.uint8, axes)
        lossless = extra.get("suffix") == ".mkv"
        self.av, self.container = av, av.open(path, "w", format="matroska" if lossless else "mp4")
        self.stream = self.container.add_stream("ffv1" if lossless else "mpeg4", rate=Fraction(extra.get("fps") or 25))
        self.stream.height, self.stream.width = shape[axes.index("Y")], shape[axes.index("X")]
        self.stream.pix_fmt = "bgr0" if lossless else "yuv420p"
        self.next = 0
        self.buffer = np.zeros(tuple(n for n, a in zip(shape, axes) if a != "T"), np.uint8)
        self.filled = 0

    def write(self, start: Sequence[int], part: Array) -> None:
        for k in range(part.shape[0]):
            if start[0] + k != self.next:
                raise FormatError("'%s': frames have to come in order: expected %d, found %d" % (self.path, self.next, start[0] + k))
            self.buffer[tuple(slice(a, a + n) for a, n in zip(start[1:], part.shape[1:]))] = part[k]
            self.filled += part[k].size
            if self.filled == self.buffer.size:
                self._frame(self.buffer)
                self.next, self.filled = self.next + 1, 0

    def _frame(self, frame: Array) -> None:
        if "C" in self.axes:
            frame = np.moveaxis(frame, self.axes.index("C") - 1, -1)
        if frame.ndim == 2 or frame.shape[-1] == 1:
            frame = np.repeat(frame.reshape(frame.shape[:2] + (1,)), 3, 2)
        for packet in self.stream.encode(self.av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")):
            self.container.mux(packet)

    def close(self) -> None:
        for packet in self.stream.encode():
            self.container.mux(packet)
        self.container.close()

    def abandon(self) -> None:
        self.container.close()


def create_video(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    av = library("av", "video", path)
    channels = shape[axes.index("C")] if "C" in axes else 1
    if axes.replace("C", "") != "TYX" or channels not in (1, 3) or np.dtype(dtype) not in (np.dtype(np.uint8), np.dtype(np.bool_)):
        raise FormatError("'%s': a video has axes T, Y, X, 1 or 3 channels and uint8, found axes %s of %s, %s; choose another --format or "
                          "--dtype" % (path, axes, list(shape), np.dtype(dtype)))
    return _VideoWriter(path, shape, axes, av, extra)
