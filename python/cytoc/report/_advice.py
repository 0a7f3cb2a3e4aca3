# SPDX-License-Identifier: Apache-2.0
"""Advice in sentences, each from a measurement of the report: what it is about, what was measured, what to do.

In:  what _collect.py gathered. Out: a list of {"kind", "text", "steps"}. A kind of advice is a row of KINDS: a function that finds
     nothing, or what deserves to be said. tests/report has a model that deserves each of them, and one that does not.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

Found = Iterator[Tuple[str, List[int]]]

# A step is worth a sentence from this share of the run's time on, and where its floor is less than this part of its time.
SHARE, OF_FLOOR = 0.1, 0.4
WORTH = 1.1      # times as fast: what a change must gain
MIN_SNR = 20.0   # dB
LEAST_US = 1.0   # a run of less is not worth advice: a call alone takes some of that
MOVES = {"transpose", "identity", "concat", "slice", "pad", "split", "reshape", "depth_to_space", "space_to_depth", "unfold", "expand",
         "reverse"}


def _steps(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Steps that were timed: "us" of a run, "share"."""
    kernels = data.get("kernels", {})
    steps = [dict(s, us=kernels[s["position"]]["us"] * kernels[s["position"]]["runs"]) for s in data["program"]["steps"]
             if s["position"] in kernels]
    total = sum(s["us"] for s in steps) or 1.0
    return [dict(s, share=s["us"] / total) for s in steps]


def label(step: Dict[str, Any]) -> str:
    names = [n["name"] for n in step.get("nodes", []) if n["name"]]
    return names[0] if names else "%s (%s)" % (step["ops"], step["kernel"])


def _lanes(data: Dict[str, Any]) -> int:
    """Floats in a vector: a core does a multiplication and an addition in each of two of them a cycle."""
    return max(1, int(data["program"]["flops_per_cycle"] / 4))


def _reason(data: Dict[str, Any], step: Dict[str, Any]) -> str:
    shape, ops = step.get("shape", []), step["ops"].split()
    contraction = any(op in ("conv", "matmul", "conv_transpose") for op in ops)
    lanes = _lanes(data)
    if contraction and "conv" in ops[0] and len(shape) > 2 and shape[1] < lanes and "depthwise" not in step["algorithm"]:
        return ("its output has %d channel%s, and a vector of this CPU holds %d: most of each is wasted; more channels cost nothing, or "
                "compute it together with a layer beside it" % (shape[1], "" if shape[1] == 1 else "s", lanes))
    if contraction and ops[0] == "matmul" and shape and shape[-1] < lanes:
        return "its result has %d columns, and a vector of this CPU holds %d" % (shape[-1], lanes)
    if step["algorithm"] == "runtime":
        return "it is an operator of the runtime, on one thread"
    if step["us"] < 5:
        return "it is too small for its threads and vectors to get going; a larger batch would fill them"
    if step.get("by_bytes"):
        return "it moves %.1f MB, more than the caches hold at once or in an order that they do not like" % (
            (step.get("read_bytes", 0) + step.get("write_bytes", 0)) / 1e6)
    if step["algorithm"] == "loops":
        return "it is computed by plain loops over its elements (%s)" % step["ops"]
    if "winograd" in step["algorithm"]:
        return "the transforms of its tiles take time that the floor does not count"
    if data.get("disturbed"):
        return "other processes interrupted the recorded runs, also when they were repeated; measure it again on an idle machine"
    return "no cause shows in what was measured"


def far_from_floor(data: Dict[str, Any]) -> Found:
    threads = max(1, data["threads"] or 1)
    for s in sorted(_steps(data), key=lambda s: -s["us"]):
        floor = s.get("floor_us", 0) / threads
        if s["share"] >= SHARE and 0 < floor < OF_FLOOR * s["us"] and s["us"] >= 2:
            yield ("%s takes %.0f %% of the time at %.0f %% of its floor: %s." %
                   (label(s), 100 * s["share"], 100 * floor / s["us"], _reason(data, s))), [s["position"]]


def fixed_sizes(data: Dict[str, Any]) -> Found:
    t = data.get("tried", {}).get("fixed")
    if t and t["open_ms"] > WORTH * t["fixed_ms"]:
        dims = " ".join("--dim %s=%d" % item for item in t["sizes"].items())
        yield ("Fix %s: with %s a run takes %.3g ms instead of %.3g; with sizes that are known, algorithms, blocks and the memory are chosen "
               "when compiling." % (" and ".join("`%s`" % n for n in t["sizes"]), dims, t["fixed_ms"], t["open_ms"])), []


def integers(data: Dict[str, Any]) -> Found:
    t = data.get("tried", {}).get("int8")
    if t and t["float_ms"] > WORTH * t["ms"] and (t["snr"] is None or t["snr"] >= MIN_SNR):
        yield ("`%s` would take %.3g ms instead of %.3g at %s." %
               (t["options"], t["ms"], t["float_ms"], "equal outputs" if t["snr"] is None else "%.0f dB" % t["snr"])), []


def threads(data: Dict[str, Any]) -> Found:
    t = data.get("tried", {}).get("threads")
    if not t:
        return
    steps = _steps(data)
    alone = [s for s in steps if s["position"] not in t["split"]]
    share = sum(s["share"] for s in alone)
    if share > 0.5 and t["one_ms"] < 1.5 * t["two_ms"]:
        worst = sorted(alone, key=lambda s: -s["us"])[:3]
        yield ("2 threads give %.1fx only: steps with %.0f %% of the time do not split, as they are too small or have too few rows; the "
               "largest are %s. Run several contexts side by side, or a larger batch." %
               (t["one_ms"] / t["two_ms"], 100 * share, ", ".join(label(s) for s in worst))), [s["position"] for s in worst]


def moves(data: Dict[str, Any]) -> Found:
    steps = [s for s in _steps(data) if set(s["ops"].replace("*", " ").split()) <= MOVES | set("23456789")]
    share = sum(s["share"] for s in steps)
    if share >= 2 * SHARE:
        worst = sorted(steps, key=lambda s: -s["us"])[:3]
        yield ("%.0f %% of the time only moves elements to other places (%s): another layout of the inputs, or operators that need no "
               "transposed factors, would save it." % (100 * share, ", ".join("%s at %s" % (s["ops"], label(s)) for s in worst))), [s["position"] for s in worst]


def on_one_thread(data: Dict[str, Any]) -> Found:
    steps = [s for s in _steps(data) if s["algorithm"] == "runtime"]
    share = sum(s["share"] for s in steps)
    if share >= 2 * SHARE:
        worst = sorted(steps, key=lambda s: -s["us"])[:3]
        yield ("%.0f %% of the time are operators of the runtime, which sort, search or count on one thread: %s. Give them less to do: "
               "filter, or cut, in front of them." % (100 * share, ", ".join(label(s) for s in worst))), [s["position"] for s in worst]


def weights(data: Dict[str, Any]) -> Found:
    """Products whose weights are read for few rows."""
    if any(o.startswith(("--weights", "--int8")) for o in data["options"]):
        return
    steps = [s for s in _steps(data) if "matmul" in s["ops"].split() and s.get("by_bytes") and s.get("floor_us", 0) > 0.3 * s["us"]]
    share = sum(s["share"] for s in steps)
    if share >= 0.5 and data["program"]["weights_bytes"] > data["program"]["cache_bytes"] > 0:
        yield ("%.0f %% of the time waits for the weights of products, %.0f MB that come from memory in every run: `--weights=int8` makes "
               "them a quarter of that, a larger batch reads them for more rows at once." %
               (100 * share, data["program"]["weights_bytes"] / 1e6)), [s["position"] for s in steps[:3]]


KINDS: Dict[str, Callable[[Dict[str, Any]], Found]] = {
    "floor": far_from_floor, "sizes": fixed_sizes, "int8": integers, "threads": threads, "moves": moves, "runtime": on_one_thread,
    "weights": weights}


def advise(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    if "not_run" in data or sum(s["us"] for s in _steps(data)) < LEAST_US:
        return []
    return [{"kind": kind, "text": text, "steps": steps} for kind, find in KINDS.items() for text, steps in find(data)]
