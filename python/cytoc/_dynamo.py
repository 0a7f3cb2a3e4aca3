# SPDX-License-Identifier: Apache-2.0
"""PyTorch: `torch.compile(module, backend="cytoc")`, and `cytoc.export`.

Each graph that torch.compile hands over is exported to ONNX, compiled, and kept in the cache of compiled models; sizes that PyTorch
keeps symbolic stay symbolic. A graph that cannot be exported or compiled runs in eager mode, with one warning. For inference: graphs that
need gradients run in eager mode, too.
"""
from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ._compile import compile as _compile
from ._errors import CytocError, warn
from ._model import Model

try:
    import torch
except ImportError:
    raise ImportError("cytoc's backend for torch.compile needs the package torch: pip install torch") from None

_warned: set[str] = set()


def _fall_back(what: str, why: BaseException, graph: Any) -> Callable[..., Any]:
    text = str(why).strip().splitlines()
    key = what + (text[0] if text else "")
    if key not in _warned:
        _warned.add(key)
        warn("cytoc: a graph runs in eager mode, since it %s: %s" % (what, text[0] if text else type(why).__name__))
    forward: Callable[..., Any] = graph.forward
    return forward


def _is_constant(x: Any) -> bool:
    """Parameters and buffers of the module, which torch.compile hands over as inputs."""
    return isinstance(x, torch.nn.Parameter) or getattr(x, "_dynamo_static_input_type", None) is not None


class _Plan:
    """What the inputs and outputs of a graph are, read off its example values."""

    def __init__(self, graph: Any, example_inputs: Sequence[Any]) -> None:
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        fakes = [node.meta.get("example_value") for node in places]
        self.constants = {k: x for k, x in enumerate(example_inputs) if isinstance(x, torch.Tensor) and _is_constant(x)}
        self.tensors = [k for k, x in enumerate(example_inputs) if isinstance(x, torch.Tensor) and k not in self.constants]
        sizes: Dict[str, Tuple[int, int]] = {}  # symbol: input and axis that have it
        for k in self.tensors:
            for axis, size in enumerate(fakes[k].shape if fakes[k] is not None else ()):
                if isinstance(size, torch.SymInt):
                    sizes.setdefault(str(size), (k, axis))
        self.sizes: Dict[int, Tuple[int, int]] = {}  # inputs that are sizes: where they stand
        for k, x in enumerate(example_inputs):
            if not isinstance(x, torch.Tensor):
                symbol = str(fakes[k] if fakes[k] is not None else x)
                if symbol not in sizes:
                    raise RuntimeError("it has an input that is neither a tensor nor the size of one")
                self.sizes[k] = sizes[symbol]
        self.dynamic = [{axis: torch.export.Dim.AUTO for axis, size in enumerate(fakes[k].shape) if isinstance(size, torch.SymInt)}
                        if fakes[k] is not None else {} for k in self.tensors]
        [output] = [node for node in graph.graph.nodes if node.op == "output"]
        self.outputs: List[Optional[Tuple[int, int]]] = []  # None: a tensor; else a size, and where it stands
        for value in output.args[0]:
            example = value.meta.get("example_value") if hasattr(value, "meta") else value
            if isinstance(example, torch.Tensor):
                self.outputs.append(None)
            elif str(example) in sizes:
                self.outputs.append(sizes[str(example)])
            else:
                raise RuntimeError("it returns something that is neither a tensor nor the size of an input")


class _Tensors(torch.nn.Module):
    """A graph as a function of its tensors alone: parameters are its own, sizes are read off the tensors."""

    def __init__(self, graph: Any, plan: _Plan) -> None:
        super().__init__()
        self.graph, self.plan = graph, plan
        for k, x in plan.constants.items():
            self.register_buffer("constant_%d" % k, x.detach(), persistent=False)

    def forward(self, *xs: Any) -> Any:
        plan, given = self.plan, dict(zip(self.plan.tensors, xs))
        for k in plan.constants:
            given[k] = getattr(self, "constant_%d" % k)
        for k, (tensor, axis) in plan.sizes.items():
            given[k] = given[tensor].shape[axis]
        results = self.graph(*[given[k] for k in range(len(given))])
        return tuple(r for r, place in zip(results, plan.outputs) if place is None)


class _Compiled:
    """A graph's inputs to its outputs, as PyTorch calls it. Exported and compiled by the first call, since an export within torch.compile's
    own tracing would disturb that; and again when parameters have changed since."""

    def __init__(self, graph: Any, plan: _Plan, options: Dict[str, Any]) -> None:
        self.graph, self.plan, self.options = graph, plan, options
        self.names = ["input_%d" % k for k in plan.tensors]
        self.constants = list(plan.constants.values())
        self.versions: Optional[List[int]] = None  # of the constants, when they were compiled
        self.eager: Optional[Callable[..., Any]] = None
        self.model: Any = None

    @torch._dynamo.disable  # type: ignore
    def compile(self, inputs: Sequence[Any]) -> None:
        examples = tuple(inputs[k].detach().clone() for k in self.plan.tensors)
        shapes = tuple(self.plan.dynamic)
        try:
            with torch.no_grad():
                self.model = _compile(_Tensors(self.graph, self.plan), args=examples, input_names=self.names,
                                      dynamic_shapes=(shapes,) if any(shapes) else None, **self.options)
            self.order = [self.plan.tensors[self.names.index(info.name)] for info in self.model.inputs]
            self.versions = [x._version for x in self.constants]
        except CytocError as e:
            exported = getattr(e, "status", "") != "cannot be exported"
            self.eager = _fall_back("cannot be %s" % ("compiled" if exported else "exported"), e.__cause__ if e.__cause__ else e, self.graph)
        except Exception as e:  # the exporter raises what it likes
            self.eager = _fall_back("cannot be exported", e, self.graph)

    def __call__(self, *args: Any) -> Any:
        if self.eager is None and (self.versions is None or
                                   any(x._version != version for x, version in zip(self.constants, self.versions))):
            self.compile(args)
        if self.eager is not None:
            return self.eager(*args)
        results = self.model(*[args[k] for k in self.order])
        found = iter(results if isinstance(results, tuple) else (results,))
        return tuple(_tensor(next(found)) if place is None else args[place[0]].shape[place[1]] for place in self.plan.outputs)


def _tensor(array: Any) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def _needs_gradients(example_inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)


def backend(graph: Any, example_inputs: Sequence[Any], *, options: Optional[Dict[str, Any]] = None, mode: Optional[str] = None) \
        -> Callable[..., Any]:
    """What torch.compile calls. options: those of cytoc.compile: {"int8": "dynamic"}, {"bf16": True}, {"threads": 1}."""
    if _needs_gradients(example_inputs):
        return _fall_back("needs gradients", RuntimeError("call it under torch.inference_mode() or torch.no_grad()"), graph)
    if any(x.device.type != "cpu" for x in example_inputs if isinstance(x, torch.Tensor)):
        return _fall_back("has tensors on a device", RuntimeError("this backend computes on CPUs"), graph)
    try:
        return _Compiled(graph, _Plan(graph, example_inputs), dict(options or {}))
    except RuntimeError as e:
        return _fall_back("cannot be exported", e, graph)


def export(module: Any, args: Union[Any, Sequence[Any]], path: Union[str, "os.PathLike[str]"], *, dynamic_shapes: Any = None,
           verbose: bool = True, **options: Any) -> Model:
    """From PyTorch to a library, in one line: exports, compiles, saves, and prints what that gave: the largest difference from PyTorch's
    result on `args`, and the time beside eager mode. Further options are those of cytoc.compile."""
    args = tuple(args) if isinstance(args, (list, tuple)) else (args,)
    say = print if verbose else (lambda *a: None)
    start = time.perf_counter()
    model = _compile(module, args=args, dynamic_shapes=dynamic_shapes, **options)
    model.save(path)
    size = sum(os.path.getsize(os.fspath(path) + ending) for ending in ("", ".weights") if os.path.exists(os.fspath(path) + ending))
    say("%s: %.1f MB in %.1f s, %s" % (os.fspath(path), size / 1e6, time.perf_counter() - start, model))
    if not model.runs_here:
        say("it is for another machine: nothing is compared")
        return model
    module.eval()
    with torch.inference_mode():
        expected = module(*args)
    flat = [t for t in torch.utils._pytree.tree_leaves(expected) if isinstance(t, torch.Tensor)]
    inputs = [t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    results = model(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for info, got, want in zip(model.outputs, results, flat):
        difference = (torch.from_numpy(got).double() - want.double()).abs().max().item() if got.size else 0.0
        say("output '%s': largest difference from PyTorch %.3g, where the largest value is %.3g" %
            (info.name, difference, want.double().abs().max().item() if got.size else 0.0))
    ours, eager = _times(lambda: model(*inputs), module, args)
    say("%.3f ms a run, PyTorch eager %.3f ms (%.2fx)" % (ours * 1e3, eager * 1e3, eager / ours))
    return model


def _times(run: Callable[[], Any], module: Any, args: Sequence[Any], seconds: float = 0.5) -> Tuple[float, float]:
    """Medians of runs that take turns."""
    def once(f: Callable[[], Any]) -> float:
        start = time.perf_counter()
        f()
        return time.perf_counter() - start

    def eager() -> None:
        with torch.inference_mode():
            module(*args)
    pairs = [(once(run), once(eager))]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(pairs) < 5:
        pairs.append((once(run), once(eager)))
    middle = len(pairs) // 2
    return sorted(p[0] for p in pairs)[middle], sorted(p[1] for p in pairs)[middle]
