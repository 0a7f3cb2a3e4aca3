# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package: runs make, and copies what it builds into cytoc/_lib.

In:  the repository; CYTOC_BUILD, a folder of binaries to take instead of building (`make wheel` gives that of portable ones).
Out: a wheel for every CPython from 3.9 on (py3-none): the native code is loaded by ctypes.
"""
import importlib.util
import os
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # older setuptools
    from wheel.bdist_wheel import bdist_wheel

ROOT = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ('cytoc', 'cyto-run', 'cyto-bench', 'cyto-compare', 'cyto-tune')
LIBRARIES = ('libcyto.so', 'libcytoc.so', 'libcytoc_onnxruntime.so')
HEADERS = ('runtime/cyto.h', 'runtime/cyto.hpp', 'runtime/cyto_abi.h', 'runtime/cyto_pipeline.h', 'tools/driver/cytoc.h')


def version():
    with open(os.path.join(ROOT, 'Makefile'), encoding='utf-8') as f:
        return re.search(r'^CYTO_VERSION := (\S+)', f.read(), re.M).group(1)


def newest(pattern):
    """Scripts that cyto-bench and cytoc verify run, wherever they are."""
    return [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(ROOT, 'tools')) for name in names
            if re.fullmatch(pattern, name)]


class Build(build_py):
    def run(self):
        super().run()
        binaries = os.environ.get('CYTOC_BUILD')
        if not binaries:
            subprocess.run(['make', '-j%d' % (os.cpu_count() or 1), 'all'], cwd=ROOT, check=True)
            binaries = os.path.join(ROOT, 'build')
        target = os.path.join(self.build_lib, 'cytoc', '_lib')
        shutil.rmtree(target, ignore_errors=True)
        for folder in ('', 'bin', 'include', 'lib', 'share'):
            os.makedirs(os.path.join(target, folder), exist_ok=True)
        for name in LIBRARIES:
            shutil.copy(os.path.join(binaries, name), target)
        for name in PROGRAMS:
            shutil.copy(os.path.join(binaries, name), os.path.join(target, 'bin'))
        for path in HEADERS:
            shutil.copy(os.path.join(ROOT, path), os.path.join(target, 'include'))
        for path in newest(r'(bench_\w+|verify_python)\.py'):
            shutil.copy(path, os.path.join(target, 'share'))
        layout = importlib.util.find_spec('netron')  # of pyproject.toml's requirements
        if layout:
            vendor = os.path.join(self.build_lib, 'cytoc', 'report', 'vendor')
            os.makedirs(vendor, exist_ok=True)
            shutil.copy(os.path.join(layout.submodule_search_locations[0], 'dagre.js'), vendor)
            shutil.copy(os.path.join(ROOT, 'python', 'cytoc', 'report', 'NOTICE'), os.path.join(vendor, 'LICENSE'))
        archives = os.path.join(ROOT, 'build')
        shutil.copy(os.path.join(archives, 'libcyto.a'), os.path.join(target, 'lib'))
        for arch in os.listdir(os.path.join(archives, 'obj')):  # runtimes for other machines
            archive = os.path.join(archives, 'obj', arch, 'libcyto.a')
            if os.path.exists(archive):
                os.makedirs(os.path.join(target, 'lib', arch), exist_ok=True)
                shutil.copy(archive, os.path.join(target, 'lib', arch))


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return 'py3', 'none', super().get_tag()[2]


class Native(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), package_dir={'': 'python'}, packages=['cytoc', 'cytoc.report', 'cytoc.tiling', 'cytoc.formats', 'cytoc.predict', 'cytoc.ray'],
      package_data={'cytoc': ['py.typed'], 'cytoc.report': ['page.css', 'page.js', 'NOTICE']},
      cmdclass={'build_py': Build, 'bdist_wheel': Wheel}, distclass=Native, options={'build': {'build_base': 'build/python'}})
