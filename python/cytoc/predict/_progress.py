# SPDX-License-Identifier: Apache-2.0
"""The bar of a run, on a terminal only; and the table of its stages, with what to change."""
from __future__ import annotations

import sys
import threading
import time
from typing import Any, Callable, Dict, List

EVERY = 0.25  # seconds
WIDTH = 24

# stage of the pipeline: what may help where it is the slowest
ADVICE = {
    "open": "opening files takes longest: --readers 2, or --cache DIR, which keeps them decoded",
    "read": "reading takes longest: --readers 2, files that are not compressed, or --cache DIR, which keeps them decoded",
    "run": "the network takes longest: --int8, smaller --overlap, larger --tile, a machine with more cores",
    "blend": "blending takes longest: smaller --overlap, --blend constant",
    "after": "what follows the network takes longest: --threshold or --argmax in place of --activation",
    "write": "writing takes longest: --dtype uint8 or --threshold, a faster disk, --format npy",
}


class Bar:
    """`state` gives (items done, items failed, items in all, tiles done, name of the slowest stage)."""

    def __init__(self, state: Callable[[], Any]) -> None:
        self.state, self.shown, self.begun = state, sys.stderr.isatty(), time.monotonic()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        if self.shown:
            self.thread.start()

    def _loop(self) -> None:
        while not self.stop.wait(EVERY):
            self._draw()

    def _draw(self) -> None:
        done, failed, total, tiles, slowest = self.state()
        seconds = max(time.monotonic() - self.begun, 1e-9)
        full = WIDTH * (done + failed) // max(total, 1)
        left = " about %s left" % duration(seconds / (done + failed) * (total - done - failed)) if done + failed else ""
        sys.stderr.write("\r\x1b[K[%s%s] %d/%d%s  %.1f tiles/s%s%s" % (
            "#" * full, "." * (WIDTH - full), done, total, ", %d failed" % failed if failed else "", tiles / seconds,
            "  slowest: %s" % slowest if slowest else "", left))
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """A line above the bar."""
        sys.stderr.write(("\r\x1b[K" if self.shown else "") + text + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        self.stop.set()
        if self.shown:
            self.thread.join()
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    if seconds < 10:
        return "%.1f s" % seconds
    if seconds < 90:
        return "%.0f s" % seconds
    return "%.0f min" % (seconds / 60) if seconds < 5400 else "%.1f h" % (seconds / 3600)


def table(summary: Dict[str, Any]) -> str:
    """What a run says at its end."""
    lines: List[str] = ["%-8s %9s %9s %9s %6s" % ("stage", "items", "items/s", "busy s", "use")]
    for stage in summary["stages"]:
        lines.append("%-8s %9d %9.2f %9.1f %5.0f%%" % (stage["name"], stage["items"], stage["rate"], stage["busy"], 100 * stage["utilisation"]))
    lines.append("%d done, %d failed%s in %s, %.2f items/s, %.2f tiles/s" % (
        summary["done"], summary["failed"], ", %d were there already" % summary["skipped"] if summary["skipped"] else "",
        duration(summary["seconds"]), summary["items_per_second"], summary["tiles_per_second"]))
    if summary["bottleneck"]:
        lines.append("slowest: %s: %s" % (summary["bottleneck"], summary["advice"]))
    return "\n".join(lines)
