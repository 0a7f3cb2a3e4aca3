# SPDX-License-Identifier: Apache-2.0
"""An ONNX model compiled by cytoc behind KServe's open inference protocol, by MLServer: `mlserver start .` in this folder."""
import asyncio

import cytoc
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor
from mlserver.utils import get_model_uri

TYPES = {'float32': 'FP32', 'float64': 'FP64', 'int64': 'INT64', 'int32': 'INT32', 'uint8': 'UINT8', 'bool': 'BOOL'}


class Cytoc(MLModel):
    async def load(self) -> bool:
        # Compiled at the first start, and then found in the cache.
        self.model = cytoc.compile(await get_model_uri(self._settings))
        self.inputs, self.outputs = map(list, map(self.describe, (self.model.inputs, self.model.outputs)))
        return True

    def describe(self, ports):
        for p in ports:
            shape = [d if isinstance(d, int) else -1 for d in p.shape]
            yield MetadataTensor(name=p.name, datatype=TYPES[str(np.dtype(p.dtype))], shape=shape)

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds = {x.name: NumpyCodec.decode_input(x) for x in payload.inputs}
        names = [p.name for p in self.model.outputs]
        results = await asyncio.to_thread(self.model.run, names, feeds)  # other requests are taken meanwhile
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output(n, r) for n, r in zip(names, results)])
