# SPDX-License-Identifier: Apache-2.0
"""Trains the 3-D U-Net of this example on volumes that volume.c makes: cells.onnx.

    pip install -r requirements.txt
    python train.py
"""
import tempfile

import numpy as np
import torch
from maker import maker
from torch import nn

WIDTHS, TILE, BATCH, STEPS = (8, 16, 32), (16, 48, 48), 4, 500


def block(c, n):
    layers = []
    for k in (c, n):
        layers += [nn.Conv3d(k, n, 3, padding=1, bias=False), nn.BatchNorm3d(n), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(block(c, n) for c, n in zip((1,) + WIDTHS, WIDTHS))
        pairs = list(zip(WIDTHS[:-1], WIDTHS[1:]))[::-1]
        self.larger = nn.ModuleList(nn.ConvTranspose3d(c, n, 2, 2) for n, c in pairs)
        self.up = nn.ModuleList(block(2 * n, n) for n, _ in pairs)
        self.last = nn.Conv3d(WIDTHS[0], 1, 1)

    def forward(self, x):
        kept = []
        for k, down in enumerate(self.down):
            x = down(nn.functional.max_pool3d(x, 2) if k else x)
            kept.append(x)
        for larger, up in zip(self.larger, self.up):
            kept.pop()
            x = up(torch.cat((larger(x), kept[-1]), 1))
        return torch.sigmoid(self.last(x))


def train(net, make):
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, STEPS)
    for step in range(STEPS):
        made = (make(TILE, 1000 + step * BATCH + i) for i in range(BATCH))
        seen, cell = (torch.tensor(np.stack(a))[:, None].float() for a in zip(*made))
        found = net(seen)
        dice = 1 - (2 * (found * cell).sum() + 1) / (found.sum() + cell.sum() + 1)
        loss = nn.functional.binary_cross_entropy(found, cell) + dice
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
        if step % 20 == 0:
            print(step, loss.item(), dice.item(), flush=True)


if __name__ == '__main__':
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = UNet()
    with tempfile.TemporaryDirectory() as folder:
        train(net, maker(folder))
    free = {0: 'batch', 2: 'depth', 3: 'height', 4: 'width'}
    torch.onnx.export(net.eval(), torch.zeros(1, 1, *TILE), 'cells.onnx', input_names=['seen'], output_names=['cell'],
                      dynamic_axes={'seen': free, 'cell': free}, opset_version=17, dynamo=False)
