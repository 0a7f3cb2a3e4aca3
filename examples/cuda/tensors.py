# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors through a compiled model without a copy: DLPack takes them in and out where they lie, on the GPU.

    python3 tensors.py MODEL.onnx [BATCH]
"""
import sys

import cytoc
import torch


def main():
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    major, minor = torch.cuda.get_device_capability()
    model = cytoc.compile(sys.argv[1], target='sm_%d%d' % (major, minor))
    images = torch.rand(batch, 1, 8, 8, device='cuda')
    scores = torch.from_dlpack(model(images))  # on the device, too; the run follows what PyTorch's stream does
    print(scores.device, tuple(scores.shape))
    print('best:', scores.argmax(1).tolist())


if __name__ == '__main__':
    main()
