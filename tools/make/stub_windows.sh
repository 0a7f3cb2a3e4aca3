#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes an import library for the linker: the names that models call of one of Windows' own libraries. See stub.sh; MinGW's
# have thousands of names more, and what is not in this one's stays out of models.
#
#   tools/make/stub_windows.sh kernel32|ucrtbase OUT RUNTIME.a          TOOLS (the prefix of MinGW's) from the environment
#
# ucrtbase.dll is the C library that comes with Windows 10 and newer.
set -eu
which=$1 out=$2 runtime=$3
export LC_ALL=C

names() { ${TOOLS}nm "$(${TOOLS}gcc -print-file-name="lib$1.a")" 2>/dev/null | sed -n 's/.* I __imp_//p' | sort -u; }
{
  ${TOOLS}nm -u "$runtime" | awk '$1 == "U" { sub(/^__imp_/, "", $2); print $2 }'
  if [ "$which" = ucrtbase ]; then
    printf '%s\n' memcpy memmove memset memcmp strlen
    for f in exp exp2 expm1 log log2 log10 log1p pow sqrt cbrt hypot erf erfc lgamma tgamma fmod remainder \
      sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh \
      ceil floor trunc round rint nearbyint fma fmin fmax fdim ldexp frexp modf scalbn copysign; do
      printf '%s\n' $f ${f}f
    done
  fi
} | sort -u >"$out.wanted"
names "$which" >"$out.has"
# What kernel32 has, too, as some of the names of the C library, is not its.
if [ "$which" = kernel32 ]; then
  names ucrtbase | comm -13 - "$out.has" >"$out.own"
  mv "$out.own" "$out.has"
fi
{ echo EXPORTS; comm -12 "$out.wanted" "$out.has"; } >"$out.def"
${TOOLS}dlltool --temp-prefix "$which" -D "$which.dll" -d "$out.def" -l "$out"
rm -f "$out.wanted" "$out.has" "$out.def"
