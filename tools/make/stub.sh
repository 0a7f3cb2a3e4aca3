#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes a shared library in the place of one of the C library's for the linker: the true one's soname, and names and
# versions of the functions that models call, without code. ld reads all of the thousands of names in the true ones each
# time, which took half of the time of linking a small model. No development files are needed. And models run with older
# C libraries than this machine's:
#
#   tools/make/stub.sh libc|libm|libpthread|libdl OUT RUNTIME.a
#                        CC, NM and OBJDUMP from the environment: perhaps those of another architecture
#
# Models call what the runtime library calls, what LLVM makes of loops, and functions of mathematics, those of f32 by names
# with an f. Of a function's versions the newest up to BASE is named, which later C libraries have, too, and else the
# oldest. Before glibc 2.34, threads and dlopen were in libraries of their own, of which newer ones have empty copies:
# naming these as the place serves both. A C library without versions is fine, and one that has all of it in libc.
set -eu
BASE=2017000 # 2.17, of 2012
which=$1 out=$2 runtime=$3
CC=${CC:-cc} NM=${NM:-nm} OBJDUMP=${OBJDUMP:-objdump}
export LC_ALL=C

echo 'int main(int n, char **v) { return (int)__builtin_exp(n + (v != 0)); }' |
  $CC -x c - -x none -Wl,--no-as-needed -lm -o "$out.probe"
# Needed by name, and found where the compiler finds it; a library that does not exist is part of libc.
needed() { $OBJDUMP -p "$out.probe" | awk -v which="$1." '$1 == "NEEDED" && index($2, which) == 1 { print $2 }'; }
library() { $CC -print-file-name="$1"; }
libc=$(needed libc)
case $which in
  libpthread) soname=libpthread.so.0 ;;
  libdl) soname=libdl.so.2 ;;
  *) soname=$(needed "$which") ;;
esac
[ -n "$soname" ] && [ -e "$(library "$soname")" ] || soname=$libc
rm -f "$out.probe"

threads='^pthread_(create|detach|sigmask)$'
loading='^dl(open|sym|addr|error|close)$'
{
  case $which in
    libc) $NM -u "$runtime" | awk '$1 ~ /^[Uw]$/ { print $2 }' | grep -Ev "$threads|$loading"
      printf '%s\n' memcpy memmove memset memcmp bcmp strlen ;;
    libpthread) $NM -u "$runtime" | awk '$1 ~ /^[Uw]$/ { print $2 }' | grep -E "$threads" ;;
    libdl) $NM -u "$runtime" | awk '$1 ~ /^[Uw]$/ { print $2 }' | grep -E "$loading" ;;
    libm) for f in exp exp2 exp10 expm1 log log2 log10 log1p pow sqrt cbrt hypot erf erfc lgamma tgamma fmod remainder \
      sin cos tan sincos asin acos atan atan2 sinh cosh tanh asinh acosh atanh \
      ceil floor trunc round roundeven rint nearbyint fma fmin fmax fdim ldexp frexp modf scalbn copysign; do
      printf '%s\n' $f ${f}f
    done ;;
  esac
} | sort -u >"$out.wanted"

# "name version" of each
for from in $(printf '%s\n' "$libc" "$soname" | sort -u); do
  $NM -D --defined-only --with-symbol-versions "$(library "$from")"
done | awk -v wanted="$out.wanted" -v base="$BASE" '
  function rank(version,  part, n) { # 2.2.5 is 2002005; what is no such version ranks as the oldest
    split(substr(version, index(version, "_") + 1), part, ".")
    n = part[1] * 1000000 + part[2] * 1000 + part[3]
    return n <= base ? n : -n
  }
  BEGIN { while ((getline name < wanted) > 0) want[name] = 1 }
  $2 ~ /^[TWi]$/ && $3 !~ /PRIVATE/ {
    split($3, part, /@+/)
    if (part[1] in want && (!(part[1] in found) || rank(part[2]) > rank(found[part[1]]))) found[part[1]] = part[2]
  }
  END { for (name in found) print name, found[name] }' | sort >"$out.found"

awk '{ printf ".globl %s\n.type %s, @function\n%s:\n", $1, $1, $1 }
  END { print ".section .note.GNU-stack, \"\", %progbits" }' "$out.found" >"$out.s"
awk '$2 { names[$2] = names[$2] " " $1 ";" } END { for (v in names) printf "%s {%s };\n", v, names[v] }' "$out.found" |
  sort >"$out.map"
script=$(test -s "$out.map" && echo "-Wl,--version-script,$out.map" || true)
$CC -shared -nostdlib -s -Wl,-z,noseparate-code -Wl,--build-id=none -Wl,-soname,"$soname" $script -o "$out" "$out.s"
rm -f "$out.wanted" "$out.found" "$out.s" "$out.map"
