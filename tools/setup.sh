#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh: bring a machine to the point where `make` works, and tell make what was found.
#
# In:  tests/requirements.txt (pinned Python packages); the environment variables CYTO_NO_INSTALL=1 (look, install
#      nothing) and LLVM_CONFIG (a llvm-config to use).
# Out: missing Debian packages installed, build/venv filled, build/config.mk written for the Makefile to include.
#      `setup.sh tests`, after that: what only tests want, tests/requirements-cuda.txt and tests/python/requirements.txt.
#
# Safe to run again: each part first looks whether its result is there.  What may be absent: LLVM, without which the
# Makefile builds everything except the compiler; C compilers for 64-bit ARM and for Windows, without which cytoc makes no
# code for these; and what only tests want, which skip a part without it.  All else missing is an error that names what to
# install.
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the first llvm-config of version 17 or newer, 19 preferred; nothing when there is none.
find_llvm() {
  local c v
  for c in ${LLVM_CONFIG:-} llvm-config-19 llvm-config-{30..17} llvm-config; do
    v=$("$c" --version 2>/dev/null) || continue
    [ "${v%%.*}" -ge 17 ] && [ -e "$("$c" --includedir)/llvm-c/Core.h" ] && { command -v "$c"; return; }
  done
}

# Some clang that links libFuzzer: what tests/fuzz is built with.
has_fuzzer() {
  local c
  for c in clang-19 clang clang-{20,18,17}; do
    echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n > 4096; }' |
      "$c" -x c -fsanitize=fuzzer,address - -o build/fuzz-probe 2>/dev/null && return
  done
  return 1
}

has_header() { echo "#include <$1>" | ${CC:-cc} -E -x c - >/dev/null 2>&1; }
has_venv() { python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || have virtualenv; }

# Prints the Debian packages whose files are not there yet.
missing_packages() {
  { have "${CC:-cc}" && have ld && has_header stdio.h; } || echo build-essential
  have make || echo make
  [ -n "$(find_llvm)" ] || echo llvm-19-dev
  has_header protobuf-c/protobuf-c.h || echo libprotobuf-c-dev
  have protoc-c || echo protobuf-c-compiler
  has_header jansson.h || echo libjansson-dev
  has_header zlib.h || echo zlib1g-dev
  has_header lz4hc.h || echo liblz4-dev
  [ "$(uname -m)" != x86_64 ] || have aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  have x86_64-w64-mingw32-gcc || echo gcc-mingw-w64-x86-64-win32
  { have python3 && has_venv; } || echo python3-venv
  [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

missing_for_tests() {
  has_fuzzer || echo clang-19 libclang-rt-19-dev
  have pkg-config || echo pkg-config
  have cmake || echo cmake
  { grep -q avx512_vnni /proc/cpuinfo || have bochs; } || echo bochs bochs-term
  ! have aarch64-linux-gnu-gcc || have qemu-aarch64 || echo qemu-user
  have musl-gcc || echo musl-tools
  have chromium || have chromium-browser || have google-chrome || echo chromium
  have zsh || echo zsh
  have fish || echo fish
  ! have x86_64-w64-mingw32-gcc || have wine64 || have wine || [ -e /usr/lib/wine/wine64 ] || echo wine64
}

install_packages() {
  local root='' llvm=''
  [ -z "${CYTO_NO_INSTALL:-}" ] || { say "not installed, as CYTO_NO_INSTALL is set: $*"; return 1; }
  have apt-get || { say "no apt-get here; please install what these Debian packages hold: $*"; return 1; }
  if [ "$(id -u)" != 0 ]; then
    have sudo || { say "run as root (no sudo here): apt-get install $*"; return 1; }
    root=sudo
  fi
  say "installing $*"
  $root apt-get update -qq || say "apt-get update failed; going on with the lists that are here"
  if ! apt-cache show llvm-19-dev >/dev/null 2>&1; then # a release with other versions
    for llvm in 21 20 18 17; do apt-cache show "llvm-$llvm-dev" >/dev/null 2>&1 && break; done
    set -- "${@/-19/-$llvm}"
  fi
  DEBIAN_FRONTEND=noninteractive $root ${root:+env DEBIAN_FRONTEND=noninteractive} \
    apt-get install -y -qq --no-install-recommends "$@" >build/apt.log 2>&1 && return
  tail -n 5 build/apt.log >&2
  # One package that cannot be had must not keep back the others.
  for llvm in "$@"; do $root apt-get install -y -qq --no-install-recommends "$llvm" >>build/apt.log 2>&1; done
  return 1
}

check_packages() { # what prints those that are missing
  local missing
  missing=$("$1" | tr '\n' ' ')
  [ -z "$missing" ] && return
  # shellcheck disable=SC2086
  install_packages $missing
  missing=$("$1" | tr '\n' ' ')
  [ -z "$missing" ] && return
  for missing in $missing; do
    case $missing in
      llvm-19-dev) say "LLVM 17 or newer not found and not installable: the compiler is left out, everything else is built" ;;
      clang-19) say "no clang with libFuzzer found or installable: the fuzz targets are skipped" ;;
      bochs) say "no Bochs found or installable: code for AVX-512 is not run, which this CPU lacks" ;;
      chromium) say "no Chromium found or installable: the pages of cytoc report are not tested" ;;
      cmake) say "no cmake found or installable: the CMake package is not tested" ;;
      pkg-config) say "no pkg-config found or installable: the test of an installation is skipped" ;;
      gcc-aarch64-linux-gnu) say "no compiler for 64-bit ARM found or installable: cytoc makes no code for it" ;;
      gcc-mingw-w64-x86-64-win32) say "no MinGW found or installable: cytoc makes no code for Windows" ;;
      wine64) say "no Wine found or installable: code for Windows is not run" ;;
      zsh | fish) say "no $missing found or installable: completion in it is not tested" ;;
      musl-tools) say "no musl-gcc found or installable: models are not run with musl" ;;
      qemu-user) say "no QEMU found or installable: code for 64-bit ARM is not run" ;;
      libclang-rt-19-dev | bochs-term | libc6-dev-arm64-cross) ;;
      *) die "still missing (see build/apt.log): $missing" ;;
    esac
  done
}

python_ready() { # of a file of requirements
  local want
  want=$(sed 's/#.*//;/^ *$/d' "$1" | sort)
  [ "$(build/venv/bin/python -m pip freeze --all 2>/dev/null | grep -Fxi "$want" | sort)" = "$want" ]
}

make_venv() {
  python_ready tests/requirements.txt && return
  if ! build/venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "making build/venv"
    rm -rf build/venv
    python3 -m venv build/venv >build/venv.log 2>&1 || /usr/bin/python3 -m venv build/venv >>build/venv.log 2>&1 ||
      virtualenv -q build/venv >>build/venv.log 2>&1 ||
      die "no Python virtual environment can be made (build/venv.log): install python3-venv"
  fi
  say "installing the Python packages of tests/requirements.txt into build/venv"
  build/venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt >>build/venv.log 2>&1 ||
    { tail -n 5 build/venv.log >&2; die "pip failed (build/venv.log)"; }
}

get_for_tests() { # a file of requirements, what it is, what comes of it where it cannot be had; never fails
  [ -z "${CYTO_NO_INSTALL:-}" ] || return 0
  python_ready "$1" && return
  say "installing $2 into build/venv"
  build/venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 --timeout 20 -r "$1" >>build/venv.log 2>&1 ||
    say "$2 cannot be had (build/venv.log): $3"
}

write_config() {
  local proto
  proto=$(build/venv/bin/python -c 'import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), "onnx-ml.proto"))')
  [ -e "$proto" ] || die "the onnx package has no onnx-ml.proto: $proto"
  {
    echo "# Written by tools/setup.sh; delete to have it looked for again."
    echo "LLVM_CONFIG := $(find_llvm)"
    echo "ONNX_PROTO := ${proto#"$PWD"/}"
  } >build/config.mk.new && mv build/config.mk.new build/config.mk
}

if [ "${1:-}" = tests ]; then
  check_packages missing_for_tests
  get_for_tests tests/requirements-cuda.txt NVRTC \
    "tests that compile CUDA kernels by it are skipped unless a toolkit has it"
  get_for_tests tests/python/requirements.txt "onnxscript and pyright" "tests of the Python package that use them are skipped"
else
  check_packages missing_packages
  make_venv
  write_config
fi
