# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of several nodes on one machine: each in a network namespace of its own, joined by a bridge.

In:  how many nodes. Out: a Cluster, whose first node is the head; programs run in its namespace. All traffic is between the namespaces,
which have no way out. Everything ends with the `with`.
"""
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time

PREFIX = 'cyto%d-' % (os.getpid() % 10000)
NET = '10.213.7.'
START = 120  # seconds


def ip(*words, check=True):
    return subprocess.run(['ip', *words], check=check, capture_output=True, text=True)


def possible():
    if not shutil.which('ip') or os.geteuid():
        return False
    made = not ip('netns', 'add', PREFIX + 'try', check=False).returncode
    ip('netns', 'del', PREFIX + 'try', check=False)
    return made


class Cluster:
    def __init__(self, work, count):
        self.count, self.work, self.processes = count, work, []
        self.env = dict(os.environ, RAY_AUTH_MODE='token', RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_ADDRESS='')

    def space(self, k):
        return PREFIX + str(k)

    def inside(self, k, *command, **how):
        return subprocess.Popen(['ip', 'netns', 'exec', self.space(k), *command], start_new_session=True,
                                **{'env': self.env, **how})

    def __enter__(self):
        try:
            self._connect()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self):
        """A namespace that is the bridge, and one for each node."""
        hub = self.space('hub')
        ip('netns', 'add', hub)
        ip('-n', hub, 'link', 'add', 'bridge', 'type', 'bridge')
        ip('-n', hub, 'link', 'set', 'bridge', 'up')
        for k in range(self.count):
            space, port = self.space(k), 'port%d' % k
            ip('netns', 'add', space)
            ip('-n', space, 'link', 'set', 'lo', 'up')
            ip('-n', space, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', port, 'netns', hub)
            ip('-n', hub, 'link', 'set', port, 'master', 'bridge')
            ip('-n', hub, 'link', 'set', port, 'up')
            ip('-n', space, 'addr', 'add', NET + '%d/24' % (k + 1), 'dev', 'eth0')
            ip('-n', space, 'link', 'set', 'eth0', 'up')

    def _start(self):
        ray = os.path.join(os.path.dirname(sys.executable), 'ray')
        for k in range(self.count):
            temp = '/tmp/%s%d' % (PREFIX, k)
            cache = os.path.join(self.work, 'node%d' % k)  # nodes share no disk
            where = ['--head', '--port=6379', '--include-dashboard=false', '--temp-dir=' + temp] if k == 0 else ['--address=%s1:6379' % NET]
            log = open(os.path.join(self.work, 'node%d.log' % k), 'w')
            self.processes.append(self.inside(k, ray, 'start', *where, '--node-ip-address=%s%d' % (NET, k + 1), '--num-cpus=1', '--block',
                                              '--object-store-memory=134217728', '--disable-usage-stats', stdout=log, stderr=log,
                                              env=dict(self.env, CYTOC_CACHE_DIR=cache)))
            self._wait_for(k + 1)

    def _wait_for(self, nodes):
        """Until so many are alive."""
        script = 'import ray, sys; ray.init("auto", logging_level="error"); sys.exit(sum(n["Alive"] for n in ray.nodes()) < %d)' % nodes
        end = time.monotonic() + START
        while time.monotonic() < end:
            asked = self.inside(0, sys.executable, '-c', script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if not asked.wait():
                return
            time.sleep(0.5)
        raise RuntimeError('node %d did not start in %d s: see node%d.log' % (nodes, START, nodes - 1))

    def run(self, command, when, then):
        """A Python program on the head; what it prints. When a line says `when`, then() is called."""
        said = []
        with open(os.path.join(self.work, 'job.log'), 'w') as log:
            job = self.inside(0, sys.executable, *command, stdout=subprocess.PIPE, stderr=log, text=True)
            timer = threading.Timer(300, lambda: os.killpg(job.pid, signal.SIGKILL))
            timer.start()
            for line in job.stdout:
                said.append(line)
                if when in line:
                    then()
            code = job.wait()
            timer.cancel()
        assert not code, 'exit code %d: %s%s' % (code, ''.join(said), open(os.path.join(self.work, 'job.log')).read()[-2000:])
        return ''.join(said)

    def kill(self, k):
        """Everything in its namespace, at once."""
        pids = ip('netns', 'pids', self.space(k), check=False).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def __exit__(self, *_):
        for k in range(self.count):
            self.kill(k)
        for process in self.processes:
            process.wait()
        for k in [*range(self.count), 'hub']:
            ip('netns', 'del', self.space(k), check=False)
        for k in range(self.count):
            shutil.rmtree('/tmp/%s%d' % (PREFIX, k), ignore_errors=True)
