# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled libraries: shared by processes, whole again after damage, another one by option."""
import os
import subprocess
import sys
import time

import onnx
import models
from plugin import close, files, random_feeds, reference, session

HERE = os.path.dirname(os.path.abspath(__file__))


def entry(place):
    [name] = files(place)
    return os.path.join(place, name)


def test_used_again_and_repaired():
    place, m = os.path.join(WORK, 'own-cache'), models.heavy(96)
    feeds = random_feeds(reference(m), {'rows': 3})
    want = reference(m).run(None, feeds)
    session(m, cache_dir=place)
    library = os.path.join(entry(place), 'model.so')
    assert files(entry(place)) == ['lock', 'model.h', 'model.so', 'ok']
    first = os.stat(library)
    close(session(m, cache_dir=place).run(None, feeds), want)
    assert os.stat(library).st_ino == first.st_ino
    with open(library, 'r+b') as f:  # damaged
        f.truncate(first.st_size // 2)
    close(session(m, cache_dir=place).run(None, feeds), want)
    assert os.stat(library).st_size == first.st_size
    os.remove(os.path.join(entry(place), 'ok'))  # a process was killed while it wrote
    os.makedirs(os.path.join(entry(place), 'new-killed'))
    close(session(m, cache_dir=place).run(None, feeds), want)
    assert files(entry(place)) == ['lock', 'model.h', 'model.so', 'ok']


def test_layout_is_the_python_packages():
    """What one writes the other finds intact, and both trim."""
    place, m = os.path.join(WORK, 'shared-cache'), models.heavy(104)
    session(m, cache_dir=place)
    code = 'import sys; from cytoc import _cache; print(_cache._intact(sys.argv[1], "model.so"))'
    env = dict(os.environ, PYTHONPATH='python', CYTOC_LIB_DIR=BUILD)
    said = subprocess.run([sys.executable, '-c', code, entry(place)], stdout=subprocess.PIPE, text=True, env=env, check=True).stdout
    assert said == 'True\n', said


def test_least_recently_used_go():
    place = os.path.join(WORK, 'small-cache')
    os.environ['CYTOC_CACHE_SIZE'] = '1K'
    try:
        for size in (112, 120):
            session(models.heavy(size), cache_dir=place)
            time.sleep(0.02)
        assert len([f for f in files(place) if files(os.path.join(place, f))]) == 1
    finally:
        del os.environ['CYTOC_CACHE_SIZE']


def test_processes_at_once():
    place, path = os.path.join(WORK, 'raced-cache'), os.path.join(WORK, 'raced.onnx')
    onnx.save(models.network(), path)
    env = dict(os.environ, CYTOC_CACHE_DIR=place)
    command = [sys.executable, os.path.join(HERE, 'scenario.py'), 'compile', LIBRARY, path]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) for _ in range(4)]
    for p in running:
        said = p.communicate()[0]
        assert p.returncode == 0 and said.endswith('ok\n'), said
    assert files(entry(place)) == ['lock', 'model.h', 'model.so', 'ok']


def test_home():
    """Nobody else expands a ~ here."""
    home, m, path = os.path.join(WORK, 'home'), models.two_inputs(), os.path.join(WORK, 'home.onnx')
    os.makedirs(home)
    onnx.save(m, path)
    command = [sys.executable, os.path.join(HERE, 'scenario.py'), 'compile', LIBRARY, path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, HOME=home, CYTOC_CACHE_DIR='~/from-variable'))
    before = os.environ['HOME']
    os.environ['HOME'] = home
    try:
        session(m, cache_dir='~/from-option')
    finally:
        os.environ['HOME'] = before
    found = [name for name in files(home) if not name.startswith('.')]
    assert found == ['from-option', 'from-variable'] and not os.path.exists('~'), found


def test_folder_that_cannot_be_used():
    path = os.path.join(WORK, 'a-file')
    open(path, 'w').close()
    m = models.network()
    feeds = random_feeds(reference(m), {'batch': 2})
    close(session(m, cache_dir=os.path.join(path, 'x')).run(None, feeds), reference(m).run(None, feeds))
    written = os.path.join(WORK, 'uncached.onnx')
    session(m, {'ep.context_enable': '1', 'ep.context_file_path': written, 'ep.context_embed_mode': '1'}, cache_dir=os.path.join(path, 'x'))
    close(session(written).run(None, feeds), reference(m).run(None, feeds))


def test_folder_that_can_only_be_read():
    """What is there is used without its lock."""
    place, m = os.path.join(WORK, 'read-cache'), models.heavy(88)
    session(m, cache_dir=place)
    stamp, lock = (os.path.join(entry(place), name) for name in ('ok', 'lock'))
    os.utime(stamp, (1, 1))
    os.remove(lock)
    os.makedirs(lock)  # cannot be opened
    feeds = random_feeds(reference(m), {'rows': 3})
    close(session(m, cache_dir=place).run(None, feeds), reference(m).run(None, feeds))
    assert os.stat(stamp).st_mtime > 1
