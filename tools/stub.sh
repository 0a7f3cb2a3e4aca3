#!/bin/sh
# Writes a shared library in the place of libc or libm for the linker: the true one's soname, and names and versions of
# the functions that models call, without code. ld reads all of the thousands of names in the true ones each time, which
# took half of the time of linking a small model. And no development files are needed.
#
#   tools/stub.sh libc|libm OUT RUNTIME.a    CC, NM and OBJDUMP from the environment: perhaps those of another architecture
#
# Models call what the runtime library calls, what LLVM makes of loops, and functions of mathematics, those of f32 by names
# with an f. A C library without versions is fine, and one that has its libm in libc.
set -eu
which=$1 out=$2 runtime=$3
CC=${CC:-cc} NM=${NM:-nm} OBJDUMP=${OBJDUMP:-objdump}
export LC_ALL=C

echo 'int main(int n, char **v) { return (int)__builtin_exp(n + (v != 0)); }' |
  $CC -x c - -x none -Wl,--no-as-needed -lm -o "$out.probe"
# Needed by name, and found where the compiler finds it; a libm that does not exist is part of libc.
needed() { $OBJDUMP -p "$out.probe" | awk -v which="$1." '$1 == "NEEDED" && index($2, which) == 1 { print $2 }'; }
soname=$(needed "$which")
[ -n "$soname" ] || soname=$(needed libc)
library=$($CC -print-file-name="$soname")
rm -f "$out.probe"

{
  $NM -u "$runtime" | awk '$1 ~ /^[Uw]$/ { print $2 }'
  if [ "$which" = libc ]; then
    printf '%s\n' memcpy memmove memset memcmp bcmp strlen
  else
    for f in exp exp2 exp10 expm1 log log2 log10 log1p pow sqrt cbrt hypot erf erfc lgamma tgamma fmod remainder \
      sin cos tan sincos asin acos atan atan2 sinh cosh tanh asinh acosh atanh \
      ceil floor trunc round roundeven rint nearbyint fma fmin fmax fdim ldexp frexp modf scalbn copysign; do
      printf '%s\n' $f ${f}f
    done
  fi
} | sort -u >"$out.wanted"

# "name version" of each, the version being the default one
$NM -D --defined-only --with-symbol-versions "$library" | awk -v wanted="$out.wanted" '
  BEGIN { while ((getline name < wanted) > 0) want[name] = 1 }
  $2 ~ /^[TWi]$/ { n = split($3, part, "@"); if (n != 2 && part[1] in want) print part[1], part[3] }' >"$out.found"

awk '{ printf ".globl %s\n.type %s, @function\n%s:\n", $1, $1, $1 }
  END { print ".section .note.GNU-stack, \"\", %progbits" }' "$out.found" >"$out.s"
awk '$2 { names[$2] = names[$2] " " $1 ";" } END { for (v in names) printf "%s {%s };\n", v, names[v] }' "$out.found" |
  sort >"$out.map"
script=$(test -s "$out.map" && echo "-Wl,--version-script,$out.map" || true)
$CC -shared -nostdlib -s -Wl,-z,noseparate-code -Wl,--build-id=none -Wl,-soname,"$soname" $script -o "$out" "$out.s"
rm -f "$out.wanted" "$out.found" "$out.s" "$out.map"
