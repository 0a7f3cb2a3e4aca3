# SPDX-License-Identifier: Apache-2.0
"""What a report shows: compiles the model with recording, runs it, and beside it what the advice compares with.

In:  a model, options of the compiler, inputs or random ones. Out: a dict for the page (see `collect`), plain values alone. What cannot
     run here (another CPU, no device) has no times, and a text that says why.
"""
from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .. import _native
from . import _onnx

SEED, SECONDS, MOST_RUNS = "1", 0.6, 200
RECORDINGS, CALM, RECORDING_MS = 3, 1.25, 0.001  # times that a disturbed recording is begun; what a calm one takes at most, per step besides
TIMELINE_EVENTS = 6000


class ReportError(Exception):
    """One line for the person at the command line."""


def program(name: str) -> str:
    folder = _native.library_dir()
    for path in (os.path.join(folder, "bin", name), os.path.join(folder, name)):
        if os.path.exists(path):
            return path
    raise ReportError("%s is not part of this installation: reinstall the package cytoc" % name)


def call(*words: str) -> Tuple[int, str, str]:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout, done.stderr.strip()


def last_line(text: str) -> str:
    return re.sub(r"^[\w-]+: error: ", "", (text.splitlines() or ["it ended without a message"])[-1])


class Job:
    """One report's model, options and folder of temporary files."""

    def __init__(self, model: str, options: Sequence[str], folder: str, threads: int, inputs: Optional[str]) -> None:
        self.model, self.options, self.folder, self.threads, self.inputs = model, list(options), folder, threads, inputs
        self.sizes: Dict[str, int] = {}

    def compile(self, name: str, *extra: str, without: Sequence[str] = ()) -> Tuple[str, str]:
        """The library's path, and what was printed."""
        library = os.path.join(self.folder, name + ".so")
        kept = [o for o in self.options if not any(o == w or o.startswith(w + "=") for w in without)]
        code, out, err = call(program("cytoc"), self.model, "-o", library, *kept, *extra)
        if code:
            raise ReportError(err or "compiling failed")
        return library, out

    def run(self, library: str, *extra: str, threads: Optional[int] = None) -> Dict[str, Any]:
        """What cyto-run says of a library as JSON."""
        path = os.path.join(self.folder, "run.json")
        given = ["--inputs-dir", self.inputs] if self.inputs else []
        dims = [word for name, size in self.sizes.items() for word in ("--dim", "%s=%d" % (name, size))]
        code, _, err = call(program("cyto-run"), library, *given, "--random", SEED, *dims, "--random-dims", "64", "--threads",
                            str(self.threads if threads is None else threads), "--json", path, *extra)
        if code:
            raise ReportError(last_line(err))
        with open(path, encoding="utf-8") as f:
            result: Dict[str, Any] = json.load(f)
        return result

    def time(self, library: str, threads: Optional[int] = None) -> Dict[str, Any]:
        """The same of as many runs as are worth it."""
        first = self.run(library, "--repeat", "2", threads=threads)
        runs = int(max(3, min(MOST_RUNS, SECONDS * 1e3 / max(first["median_ms"], 1e-3))))
        return self.run(library, "--repeat", str(runs), threads=threads)

    def outputs(self, library: str, name: str) -> Dict[str, np.ndarray]:
        """Tensors that a library computes, by name of file."""
        folder = os.path.join(self.folder, name)
        self.run(library, "--output-dir", folder)
        return {file[:-4]: np.load(os.path.join(folder, file)) for file in sorted(os.listdir(folder)) if file.endswith(".npy")}


def errors(got: Dict[str, np.ndarray], want: Dict[str, np.ndarray]) -> List[Dict[str, Any]]:
    """How far outputs are from others: signal-to-noise ratio in dB (None: equal), largest difference."""
    rows = []
    for name, b in want.items():
        a = got.get(name)
        if a is None or a.shape != b.shape or b.dtype.kind not in "fiub":
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        known = np.isfinite(x) & np.isfinite(y)
        noise, signal = float(np.sum((x - y)[known] ** 2)), float(np.sum(y[known] ** 2))
        snr = None if noise == 0 else 10 * float(np.log10(signal / noise)) if signal > 0 else -999.0
        rows.append({"output": re.sub(r"^out_\d+_", "", name), "snr": snr,
                     "largest": float(np.max(np.abs(x - y)[known])) if known.any() else 0.0, "elements": int(b.size)})
    return rows


def worst_snr(rows: List[Dict[str, Any]]) -> Optional[float]:
    """None: all are equal."""
    known = [r["snr"] for r in rows if r["snr"] is not None]
    return min(known) if known else None


# a row of the table: name, shape (of several words), MFLOP, kilocycles of floats and of integers, error in percent, verdict
LAYER = re.compile(r"(?P<name>.{40}) .*? +\S+ +\S+ +\S+ +(?P<error>[\d.]+|-|inf|nan)  (?P<verdict>\S.*)$")


def quantised_layers(text: str) -> Dict[str, Dict[str, str]]:
    """The table that --int8 --explain prints, by layer."""
    rows: Dict[str, Dict[str, str]] = {}
    inside = False
    for line in text.splitlines():
        if line.startswith("layer "):
            inside = True
        elif inside and re.match(r"\d+ of \d+ layers", line):
            inside = False
        elif inside:
            found = LAYER.match(line)
            if found:
                rows[found["name"].strip()] = {"error": found["error"], "verdict": found["verdict"]}
    return rows


def timeline(path: str) -> Dict[str, Any]:
    """The last run of a recording: its steps by lane, in microseconds from its beginning."""
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    runs = [e for e in events if e["ph"] == "X" and e["cat"] == "run"]
    if not runs:
        return {"lanes": [], "us": 0}
    last = runs[-1]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    lanes: Dict[Tuple[int, int], List[List[float]]] = {}
    begin, end = last["ts"], last["ts"] + last["dur"]
    for e in events:
        # the caller's own part of a step is the step
        own = (e["pid"], e["tid"]) == (last["pid"], last["tid"])
        if e["ph"] == "X" and e["cat"] in ("step", "thread", "copy") and begin <= e["ts"] <= end and not (own and e["cat"] == "thread"):
            row = [e["args"].get("step", -1), round(e["ts"] - begin, 3), e["dur"]]
            if len(lanes.setdefault((e["pid"], e["tid"]), [])) < TIMELINE_EVENTS:
                lanes[e["pid"], e["tid"]].append(row)
    return {"us": last["dur"], "lanes": [{"name": names.get(k, "?"), "events": v} for k, v in lanes.items()]}


def split_steps(path: str) -> List[int]:
    """Positions of the steps that a recording shows to be split, whichever threads then had time for the parts."""
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    return sorted({e["args"]["step"] for e in events if e["ph"] == "X" and e["cat"] == "thread"})


def with_runtime(job: Job, library: str, folder: str) -> Optional[Dict[str, Any]]:
    """ONNX Runtime on the same inputs: its time beside ours, in turns, and the difference. None: it is not installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    from .._model import load
    options = ort.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.log_severity_level = 3
    session = ort.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    feeds = inputs_of(job, library)
    times: Tuple[List[float], List[float]] = ([], [])
    with load(library, threads=job.threads) as model:
        mine, theirs = model.run(None, feeds), session.run(None, feeds)
        turns: Tuple[Callable[[], Any], ...] = (lambda: model.run(None, feeds), lambda: session.run(None, feeds))
        for _ in range(7):
            for k, turn in enumerate(turns):
                turn()
                start = time.perf_counter()
                n = 0
                while n < 3 or (time.perf_counter() - start < 0.05 and n < 200):
                    turn()
                    n += 1
                times[k].append((time.perf_counter() - start) * 1e3 / n)
        names = [o.name for o in model.outputs]
    as_dict = [{n: np.asarray(v) for n, v in zip(names, values) if isinstance(v, np.ndarray)} for values in (mine, theirs)]
    return {"version": ort.__version__, "ms": float(np.median(times[1])), "our_ms": float(np.median(times[0])),
            "errors": errors(as_dict[0], as_dict[1])}


def inputs_of(job: Job, library: str) -> Dict[str, Any]:
    """Inputs for Python: those of the folder, or random ones of the sizes that the report is for."""
    from .._model import load
    rng, feeds = np.random.default_rng(int(SEED)), {}
    files = {int(m[1]): os.path.join(job.inputs, f) for f in sorted(os.listdir(job.inputs)) for m in [re.match(r"in_(\d+)_.*\.npy$", f)]
             if m} if job.inputs else {}
    with load(library) as model:
        for k, port in enumerate(model.inputs):
            if k in files:
                feeds[port.name] = np.load(files[k])
            elif not port.optional:
                shape = [d if isinstance(d, int) else job.sizes.get(d, 1) for d in port.shape]
                dtype = np.dtype(port.dtype) if port.dtype != "bfloat16" else np.dtype(np.float32)
                feeds[port.name] = rng.random(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 2, shape).astype(dtype)
    return feeds


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            found = re.search(r"model name\s*: (.*)", f.read())
            return found.group(1).strip() if found else platform.machine()
    except OSError:
        return platform.machine()


def read_source(path: str) -> Optional[Dict[str, Any]]:
    try:
        return _onnx.read(path)
    except (OSError, ValueError):
        return None


def parse_program(printed: str) -> Dict[str, Any]:
    """The line of JSON at the end of what --explain=json prints."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            result: Dict[str, Any] = json.loads(line)
            return result
    raise ReportError("the compiler printed no program")


def record(job: Job, library: str, plain: Dict[str, Any]) -> Tuple[Dict[str, Any], str, bool]:
    """Recorded runs, the path of their trace, and whether they were disturbed. One run that another process interrupts shows in
    the mean times of the steps: runs that take longer than those without recording, beyond what recording costs, are done again."""
    found: List[Tuple[float, Dict[str, Any], str]] = []
    for attempt in range(RECORDINGS):
        trace = os.path.join(job.folder, "trace%d.json" % attempt)
        result = job.run(library, "--profile", "--repeat", str(max(5, min(plain["runs"], 50))), "--trace", trace)
        found.append((result["mean_ms"], result, trace))
        calm = CALM * plain["median_ms"] + RECORDING_MS * len(result["kernels"])
        if result["mean_ms"] <= calm:
            return result, trace, False
    _, result, trace = min(found, key=lambda f: f[0])
    return result, trace, True


def measure(job: Job, library: str, data: Dict[str, Any]) -> None:
    """Times of the library as it is, of each step, of the run's timeline."""
    plain = job.time(library)
    recorded, trace, data["disturbed"] = record(job, library, plain)
    data["run"] = {key: plain[key] for key in ("ran_on", "first_ms", "runs", "min_ms", "mean_ms", "median_ms", "p95_ms", "p99_ms",
                                               "deviation_ms", "samples", "samples_per_second", "inputs", "outputs", "memory")}
    data["kernels"] = {k["step"]: {"us": k["us"], "first_us": k.get("first_us"), "runs": k["runs"] / recorded["runs"]}
                       for k in recorded["kernels"]}
    data["timeline"] = timeline(trace)


def compare(job: Job, library: str, data: Dict[str, Any], against: str) -> None:
    """The same model without optimisations, and ONNX Runtime."""
    eager, _ = job.compile("eager", "-O0", without=("-O", "--int8", "--calibrate", "--fp16", "--bf16", "--weights", "--profile"))
    data["eager_ms"] = job.time(eager)["median_ms"]
    data["accuracy"] = {"against": "-O0 in the model's own precision", "rows": errors(job.outputs(library, "mine"), job.outputs(eager, "eager"))}
    if against == "ort":
        try:
            data["ort"] = with_runtime(job, library, job.folder)
            if data["ort"] is None:
                data["notes"].append("ONNX Runtime is not installed: pip install onnxruntime")
            else:
                data["accuracy"] = {"against": "ONNX Runtime " + data["ort"]["version"], "rows": data["ort"]["errors"]}
        except Exception as e:  # whatever the other side has to say
            data["notes"].append("ONNX Runtime cannot run the model: %s" % str(e).splitlines()[0][:300])


def try_others(job: Job, data: Dict[str, Any], floats: bool) -> None:
    """What advice is measured by: other numbers of threads, fixed sizes, 8-bit integers."""
    tried: Dict[str, Any] = {}
    data["tried"] = tried
    library = os.path.join(job.folder, "model.so")
    if (os.cpu_count() or 1) > 1:
        trace = os.path.join(job.folder, "threads.json")
        job.run(library, "--trace", trace, "--repeat", "2", threads=2)
        tried["threads"] = {"one_ms": job.time(library, threads=1)["median_ms"], "two_ms": job.time(library, threads=2)["median_ms"],
                            "split": split_steps(trace)}
    if job.sizes:
        fixed = [word for name, size in job.sizes.items() for word in ("--dim", "%s=%d" % (name, size))]
        plain, _ = job.compile("open")
        other, _ = job.compile("fixed", *fixed)
        tried["fixed"] = {"sizes": job.sizes, "open_ms": job.time(plain)["median_ms"], "fixed_ms": quick(job, other)["median_ms"]}
    if floats and data.get("accuracy"):
        how = ["--int8=static", "--calibrate=" + job.inputs] if job.inputs else ["--int8"]
        try:
            small, _ = job.compile("int8", *how)
            base = job.time(library)["median_ms"]
            tried["int8"] = {"options": " ".join(how[:1]), "ms": job.time(small)["median_ms"], "float_ms": base,
                             "snr": worst_snr(errors(job.outputs(small, "small"), job.outputs(library, "mine")))}
        except ReportError:  # a model with nothing to compute in integers
            pass


def quick(job: Job, library: str) -> Dict[str, Any]:
    """The time of a library that has no open sizes any more."""
    sizes, job.sizes = job.sizes, {}
    try:
        return job.time(library)
    finally:
        job.sizes = sizes


def collect(model: str, options: Sequence[str], threads: int, inputs: Optional[str], against: str, tries: bool) -> Dict[str, Any]:
    if not os.path.exists(model):
        raise ReportError("cannot open '%s': there is no such file" % model)
    with tempfile.TemporaryDirectory(prefix="cytoc-report-") as folder:
        job = Job(model, options, folder, threads, inputs)
        library, printed = job.compile("model", "--profile", "--explain=json")
        explained = parse_program(printed)
        data: Dict[str, Any] = {
            "model": {"file": os.path.basename(model), "bytes": os.path.getsize(model)}, "options": list(options), "threads": threads,
            "date": datetime.datetime.now().isoformat(timespec="minutes"), "cpu": cpu_name(), "library_bytes": os.path.getsize(library),
            "version": _native.decoded(_native.compiler().cytoc_version()), "program": explained, "source": read_source(model),
            "quantised": quantised_layers(printed), "notes": [], "inputs": inputs or "random"}
        job.sizes = explained["sizes"]
        quantises = any(re.match(r"--(int8|fp16|bf16|weights)", o) for o in options)
        try:
            measure(job, library, data)
        except ReportError as e:
            data["not_run"] = str(e) + ("" if inputs else " (inputs were random; --inputs DIR gives it others)")
            return data
        try:
            compare(job, library, data, against)
            if tries:
                try_others(job, data, not quantises)
        except ReportError as e:
            data["notes"].append(str(e))
        return data
