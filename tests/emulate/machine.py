# SPDX-License-Identifier: Apache-2.0
"""Runs compiled models on CPUs that this machine is not, by cyto-run: those of 64-bit ARM in QEMU, which runs programs;
those of x86-64 in Bochs, on a kernel of our own (kernel.c), as QEMU lacks AVX-512.

In:  jobs (library, folder of inputs, folder for outputs); rom.bin, cyto-run-aarch64. One start of Bochs runs them all.
Out: for each job None, or why there are no outputs, as network.execute() has it.

Bochs's disk is a file: a tar archive with cyto-run, the shared libraries it needs, the jobs' files and the list
of commands, then room for the archive of what they write.
"""
import io
import os
import re
import shutil
import struct
import subprocess
import tarfile

import lib
import network

SECTOR, CYLINDER = 512, 16 * 63 * 512
OUTPUT_ROOM = 64 << 20  # bytes of the disk, a hole in its file

CONFIGURATION = '''
cpu: model=%(model)s, count=1, ips=200000000, reset_on_triple_fault=0
memory: guest=%(megabytes)d, host=%(megabytes)d
romimage: file=%(rom)s
vgaromimage: file=%(rom)s
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, mode=flat, path=%(disk)s, cylinders=0, heads=16, spt=63
boot: disk
display_library: rfb, options="timeout=0"
port_e9_hack: enabled=1
pci: enabled=0
log: %(log)s
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
'''
MEGABYTES = 512


def bochs_help(*topic):
    """What Bochs says about itself; nothing where there is none."""
    return ''.join(lib.run(['bochs', '-help', *topic])[1:]) if shutil.which('bochs') else ''


def models(args):
    """The CPUs that there is an emulator for: Bochs's, and QEMU's as aarch64-NAME."""
    found = re.findall(r'^([a-z0-9_]+)$', bochs_help('cpu'), re.M)
    if os.path.exists(arm_run(args)) and shutil.which(QEMU[0]):
        listed = lib.run([QEMU[0], '-cpu', 'help'])[1]
        found += ['aarch64-' + name for name in re.findall(r'^ +(\S+)', listed, re.M)]
    return found


# ---- QEMU ----

QEMU = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu']  # where Debian's C library for such programs lies


def arm_run(args):
    return os.path.join(args.build, 'tests', 'emulate', 'cyto-run-aarch64')


def run_arm(args, model, job):
    library, inputs, outputs = job
    return network.execute(args, library, inputs, outputs, 1, runner=[*QEMU, '-cpu', model, arm_run(args)])


# ---- Bochs ----

# What Bochs computes wrongly: a mask register shifted by 15 becomes 0 (2.7 to 3.0), GFNI (2.7), where vpextrw of one of the
# upper registers stores to (2.7; it takes a short displacement for bytes).
MISTAKES = re.compile(r'\t(kshift[lr]w +\$0xf,|v?gf2p8|vpextrw +\$0x\w+,%xmm(1[6-9]|2\d|3[01]),-?0x\w+\()')


def instructions(library):
    with open(library, 'rb') as f:
        is_arm = f.read(20)[18] == 183  # EM_AARCH64
    command = [('aarch64-linux-gnu-' if is_arm else '') + 'objdump', '-d', '--no-show-raw-insn', library]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def mistaken(library):
    """Whether a library holds an instruction that the emulator gets wrong."""
    return MISTAKES.search(instructions(library)) is not None


def libraries(program):
    """Paths of the shared libraries of a program or library, its loader included."""
    text = subprocess.run(['ldd', program], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r'(/\S+) \(0x', text)


class Disk:
    """Collects files and commands, writes the image, reads what came back."""

    def __init__(self, path):
        self.path, self.lines, self.names = path, [], set()
        self.file = open(path, 'w+b')
        self.file.write(bytes(SECTOR))
        self.tar = tarfile.open(fileobj=self.file, mode='w', format=tarfile.USTAR_FORMAT)

    def add(self, name, data):
        name = name.lstrip('/')
        if name not in self.names:
            self.names.add(name)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            self.tar.addfile(entry, io.BytesIO(data))
        return name

    def add_file(self, path, name):
        with open(path, 'rb') as f:
            return self.add(name, f.read())

    def command(self, *words):
        self.lines.append('\t'.join(words) + '\n')

    def close(self):
        self.add('commands', ''.join(self.lines).encode())
        self.tar.close()
        self.file.seek(0, os.SEEK_END)
        self.output = -(-self.file.tell() // SECTOR)
        self.file.truncate(-(-(self.output * SECTOR + OUTPUT_ROOM) // CYLINDER) * CYLINDER)
        self.file.seek(0)
        self.file.write(struct.pack('<QQQ', (self.output - 1) * SECTOR, self.output, MEGABYTES << 20))
        self.file.close()

    def results(self):
        with open(self.path, 'rb') as f:
            f.seek(self.output * SECTOR)
            with tarfile.open(fileobj=f, mode='r|') as tar:
                return {entry.name: tar.extractfile(entry).read() for entry in tar}


def boot(disk, model, rom, timeout):
    """None, or why the emulator did not come to its end."""
    paths = {key: disk + '.' + key for key in ('rc', 'log', 'debugger')}
    with open(paths['rc'], 'w', encoding='utf-8') as f:
        f.write(CONFIGURATION % {'model': model, 'megabytes': MEGABYTES, 'rom': rom, 'disk': disk, 'log': paths['log']})
    with open(paths['debugger'], 'w', encoding='utf-8') as f:
        f.write('c\nq\n')  # Debian's has its debugger compiled in, which waits for commands
    debugger = ['-rc', paths['debugger']] if re.search(r'^ *-rc ', bochs_help(), re.M) else []
    code, out, err = lib.run(['bochs', '-q', '-f', paths['rc'], *debugger], timeout)
    if 'shutdown requested' in err:
        said = re.search(r'^kernel: (.*)$', out, re.M)
        return said.group(1) if said else None
    panics = []
    if os.path.exists(paths['log']):
        with open(paths['log'], encoding='utf-8', errors='replace') as f:
            panics = [line.strip() for line in f if 'PANIC' in line]
    return 'Bochs: ' + (panics[0] if panics else lib.reason(err, code))


def run(args, model, jobs, work, timeout=600):
    if model.startswith('aarch64-'):
        return [run_arm(args, model[len('aarch64-'):], job) for job in jobs]
    return run_bochs(args, model, jobs, work, timeout)


def run_bochs(args, model, jobs, work, timeout):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    disk = Disk(os.path.join(work, 'disk'))
    disk.add_file(args.cyto_run, 'cyto-run')
    for path in sorted({path for file in (args.cyto_run, jobs[0][0]) for path in libraries(file)}):
        disk.add_file(path, path if 'ld-linux' in path else 'lib/' + os.path.basename(path))
    for k, (library, inputs, _) in enumerate(jobs):
        for file in sorted(os.listdir(inputs)):
            disk.add_file(os.path.join(inputs, file), 'i%d/%s' % (k, file))
        disk.add_file(library, 'm%d.so' % k)
        disk.command('cyto-run', 'm%d.so' % k, '--inputs-dir', 'i%d' % k, '--output-dir', 'o%d' % k, '--threads', '1')
    disk.close()
    why = boot(disk.path, model, os.path.join(args.build, 'tests', 'emulate', 'rom.bin'), timeout)
    found = {} if why else disk.results()
    reasons = []
    for k, (_, _, outputs) in enumerate(jobs):
        shutil.rmtree(outputs, ignore_errors=True)
        os.makedirs(outputs)
        for name, data in found.items():
            if name.startswith('o%d/' % k):
                with open(os.path.join(outputs, os.path.basename(name)), 'wb') as f:
                    f.write(data)
        said = found.get('%d.log' % k, b'').decode('utf-8', 'replace').splitlines()
        reasons.append(why or (None if said[-1:] == ['exit 0'] else 'run: ' + ' '.join(said[-2:])[-400:]))
    shutil.rmtree(work)
    return reasons
