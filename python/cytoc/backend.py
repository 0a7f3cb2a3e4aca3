# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend interface: `onnx.backend.test.BackendTest(cytoc.backend, __name__)` runs the standard's tests on cytoc."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from ._compile import compile as _compile
from ._model import Model

try:
    from onnx.backend.base import Backend, BackendRep
except ImportError:
    raise ImportError("cytoc.backend needs the package onnx: pip install onnx") from None


class CytocBackendRep(BackendRep):  # type: ignore[misc]
    """A compiled model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        results = self.model(**inputs) if isinstance(inputs, dict) else \
            self.model(*(inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        return results if isinstance(results, tuple) else (results,)


class CytocBackend(Backend):  # type: ignore[misc]
    """Models are compiled for this machine's CPU."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> CytocBackendRep:
        if not cls.supports_device(device):
            raise ValueError("device: expected CPU, found '%s'" % device)
        return CytocBackendRep(_compile(model, cache=False, threads=1, **kwargs))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> Tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Sequence[Any], device: str = "CPU", outputs_info: Optional[Sequence[Any]] = None,
                 **kwargs: Any) -> Tuple[Any, ...]:
        """A model of one node, of which the inputs are given by value."""
        import numpy as np
        from onnx import helper
        ports: List[Any] = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
                            for name, x in zip([n for n in node.input if n], inputs)]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], "node", ports, outputs))
        return cls.run_model(model, list(inputs), device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.upper() == "CPU"


is_compatible = CytocBackend.is_compatible
prepare = CytocBackend.prepare
run = run_model = CytocBackend.run_model
run_node = CytocBackend.run_node
supports_device = CytocBackend.supports_device
