# SPDX-License-Identifier: Apache-2.0
"""The suite `torch`, within a Python that has PyTorch: networks beside eager mode, graph breaks, changed weights, what falls back."""
import inspect
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings

import torch

import cytoc
import cytoc._dynamo

torch.set_num_threads(2)


def compiled(module, **options):
    torch._dynamo.reset()
    return torch.compile(module, backend='cytoc', options=options or None)


def runs(count):
    """How many models the backend has compiled since: it must not have fallen back in silence."""
    return len(MODELS) - count


MODELS = []
_compile = cytoc._dynamo._compile


def counting(*args, **options):
    MODELS.append(_compile(*args, **options))
    return MODELS[-1]


cytoc._dynamo._compile = counting


def close(found, expected, tolerance=1e-4):
    scale = max(1.0, expected.abs().max().item())
    worst = (found - expected).abs().max().item() if expected.numel() else 0.0
    assert found.shape == expected.shape and found.dtype == expected.dtype, (found.shape, expected.shape)
    assert worst <= tolerance * scale, 'off by %g' % worst


def beside_eager(module, *inputs, tolerance=1e-4, **options):
    module = module.eval()
    before = len(MODELS)
    with torch.no_grad():
        fast = compiled(module, **options)
        for x in inputs:
            close(fast(*x), module(*x), tolerance)
    assert runs(before) >= 1, 'nothing was compiled'
    return fast


def test_resnet18():
    import torchvision
    torch.manual_seed(0)
    beside_eager(torchvision.models.resnet18(weights=None), (torch.rand(1, 3, 96, 96),), (torch.rand(3, 3, 96, 96),),
                 (torch.rand(4, 3, 96, 96),))
    assert len(MODELS) <= 2, 'sizes are not symbolic: %d models' % len(MODELS)


def test_vit():
    from torchvision.models.vision_transformer import VisionTransformer
    torch.manual_seed(1)
    net = VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10)
    torch.nn.init.normal_(net.heads.head.weight)
    beside_eager(net, (torch.rand(2, 3, 64, 64),))


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = torch.nn.Embedding(50, 16), torch.nn.LSTM(16, 24, batch_first=True, bidirectional=True)
        self.out = torch.nn.Linear(48, 5)

    def forward(self, words):
        return self.out(self.lstm(self.embed(words))[0])


def test_lstm():
    torch.manual_seed(2)
    beside_eager(Tagger(), (torch.randint(0, 50, (2, 7)),), (torch.randint(0, 50, (2, 12)),))


class Decoder(torch.nn.Module):
    """One attention with a cache of keys and values."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.qkv, self.out, self.heads = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width), heads

    def forward(self, x, keys, values):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, w)), k, v


def test_cached_transformer():
    torch.manual_seed(3)
    net = Decoder().eval()
    before = len(MODELS)
    with torch.no_grad():
        fast = compiled(net)
        mine = theirs = (torch.rand(1, 4, 3, 8), torch.rand(1, 4, 3, 8))
        for _ in range(6):
            x = torch.rand(1, 1, 32)
            y, *mine = fast(x, *mine)
            z, *theirs = net(x, *theirs)
            close(y, z)
            close(mine[0], theirs[0])
    assert 1 <= runs(before) <= 3, '%d models for 6 lengths' % runs(before)


class Broken(torch.nn.Module):
    """Two graphs, with a decision of Python's between them, and a size among the results."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        h = self.a(x)
        if h.sum() > 0:
            h = h * 2
        return self.b(h), h.shape[0]


def test_graph_breaks():
    torch.manual_seed(4)
    net = Broken().eval()
    before = len(MODELS)
    with torch.no_grad():
        fast = compiled(net)
        for n in (3, 5, 8):
            x = torch.rand(n, 4) - 0.5
            (y, found), (z, rows) = fast(x), net(x)
            close(y, z)
            assert found == rows == n
    assert runs(before) >= 2


def test_changed_weights():
    net = torch.nn.Linear(4, 3).eval()
    x = torch.rand(2, 4)
    with torch.no_grad():
        fast = compiled(net)
        close(fast(x), net(x))
        net.weight.copy_(torch.ones(3, 4))
        close(fast(x), net(x))


def test_options():
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).eval()
    x = torch.rand(8, 64)
    before = len(MODELS)
    with torch.no_grad():
        y = compiled(net, bf16=True)(x)
        assert 0 < (y - net(x)).abs().max() < 0.1, 'bf16 changed nothing'
        close(compiled(net, int8='dynamic')(x), net(x), 0.1)
    assert runs(before) == 2


def test_falls_back():
    """What cannot be exported, and what needs gradients, runs in eager mode, with one warning."""
    def eigen(x):
        return torch.linalg.eigvals(x)
    x = torch.eye(3)
    before = len(MODELS)
    cytoc._dynamo._warned.clear()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter('always')
        fast = compiled(eigen)
        assert torch.equal(fast(x), eigen(x)) and torch.equal(fast(2 * x), eigen(2 * x))
    ours = [w for w in caught if 'eager mode' in str(w.message)]
    assert len(ours) == 1 and runs(before) == 0, [str(w.message) for w in caught]
    net = torch.nn.Linear(4, 1)
    y = compiled(net)(torch.rand(2, 4)).sum()
    y.backward()
    assert net.weight.grad is not None


def test_compile_module():
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).train()
    x = torch.rand(1, 3, 8, 8)
    model = cytoc.compile(net, args=(x,), dynamic_shapes=({2: torch.export.Dim('height'), 3: torch.export.Dim('width')},))
    assert net.training
    for size in ((8, 8), (12, 9)):
        x = torch.rand(1, 3, *size)
        close(torch.from_numpy(model(x)), net(x).detach())
    channels_last = x.to(memory_format=torch.channels_last)
    close(torch.from_numpy(model(channels_last)), net(x).detach())
    for wrong, kind, part in ((lambda: cytoc.compile(net), TypeError, 'args'), (lambda: model(x.double()), cytoc.InputError, 'float64')):
        try:
            wrong()
        except kind as e:
            assert part in str(e), e
        else:
            raise AssertionError('nothing was raised')


def test_module_that_cannot_be_exported():
    class Eigen(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x)
    for module, part in ((Eigen(), 'Eigen'), (torch.nn.Linear(4, 2), 'Linear')):  # an operator that ONNX has not; inputs that do not fit
        try:
            cytoc.compile(module, args=(torch.eye(3),))
        except cytoc.CompileError as e:
            assert 'cannot be exported' in str(e) and part in str(e) and '\x1b' not in str(e) and e.__cause__, e
        else:
            raise AssertionError('it was exported')
        assert module.training


def test_modules_are_kept():
    """The same module is not compiled again; other weights are."""
    net, x = torch.nn.Linear(300, 200).eval(), torch.rand(2, 300)  # so large that the exporter writes the weights to a file
    first = cytoc.compile(net, args=(x,))
    assert cytoc.compile(net, args=(x,)).path == first.path
    with torch.no_grad():
        net.weight += 1
        changed = cytoc.compile(net, args=(x,))
        assert changed.path != first.path
        close(torch.from_numpy(changed(x)), net(x))


def test_dlpack():
    """Tensors as they lie: no copy of those that are dense."""
    net = torch.nn.Linear(8, 4).eval()
    model = cytoc.compile(net, args=(torch.rand(2, 8),), threads=1)
    seen = []
    bind = cytoc._model._Context.bind_raw

    def spy(self, k, kind, shape, address):
        seen.append(address)
        return bind(self, k, kind, shape, address)
    cytoc._model._Context.bind_raw = spy
    try:
        x = torch.rand(2, 8)
        for given, same in ((x, True), (x.clone().requires_grad_(), True), (torch.rand(8, 2).T, False), (x[:, :].contiguous()[:], True)):
            y = model(given)
            assert (seen[-1] == given.data_ptr()) == same
            close(torch.from_numpy(y), net(given).detach())
    finally:
        cytoc._model._Context.bind_raw = bind
    half = cytoc.compile(torch.nn.Identity(), args=(torch.rand(2, 8).bfloat16(),)) if hasattr(torch, 'bfloat16') else None
    try:
        model(torch.rand(2, 8, device='meta'))
    except cytoc.InputError as e:
        assert 'DLPack' in str(e), e
    else:
        raise AssertionError('a tensor without memory was taken')
    x = torch.rand(2, 8).bfloat16()
    y = half(x)
    assert (y.view('int16') == x.view(torch.int16).numpy()).all()


def test_export():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, 'net.so')
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    model = cytoc.export(net, (torch.rand(2, 4),), path, verbose=False)
    x = torch.rand(2, 4)
    close(torch.from_numpy(cytoc.load(path)(x)), net(x).detach())
    close(torch.from_numpy(model(x)), net(x).detach())
    shutil.rmtree(folder)


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith('test_') or not inspect.isfunction(test) or \
                not (len(sys.argv) < 2 or any(re.search(p, name) for p in sys.argv[1:])):
            continue
        MODELS.clear()
        try:
            test()
            passed += 1
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print('FAILED %s' % name)
            failed += 1
    print('%d passed, %d failed, 0 skipped' % (passed, failed))
    sys.exit(failed != 0)


if __name__ == '__main__':
    main()
