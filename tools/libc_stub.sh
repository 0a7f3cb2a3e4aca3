#!/bin/sh
# Writes a shared library in the place of libc for the linker: libc's soname, and names and versions of the functions
# that models call, without code. ld reads the thousands of libc's own symbols each time, which took a third of the
# time of compiling a small model.
#
#   tools/libc_stub.sh OUT RUNTIME.a    CC and NM from the environment
#
# Models call what the runtime library calls, what LLVM makes of loops, and what pthread_atfork is made of
# (codegen/host.c). A C library without versions is fine.
set -eu
out=$1 runtime=$2
CC=${CC:-cc} NM=${NM:-nm}
export LC_ALL=C

echo 'int main(void) { return 0; }' | $CC -x c - -o "$out.probe"
libc=$(ldd "$out.probe" | awk '/libc\./ { print $3 }')
rm -f "$out.probe"

{
  $NM -u "$runtime" | awk '$1 ~ /^[Uw]$/ { print $2 }'
  printf '%s\n' memcpy memmove memset memcmp bcmp strlen __register_atfork
} | sort -u >"$out.wanted"

# "name version" of each, the version being the default one
$NM -D --defined-only --with-symbol-versions "$libc" | awk -v wanted="$out.wanted" '
  BEGIN { while ((getline name < wanted) > 0) want[name] = 1 }
  $2 ~ /^[TWi]$/ { n = split($3, part, "@"); if (n != 2 && part[1] in want) print part[1], part[3] }' >"$out.found"

awk '{ printf ".globl %s\n.type %s, @function\n%s:\n", $1, $1, $1 }
  END { print ".section .note.GNU-stack, \"\", %progbits" }' "$out.found" >"$out.s"
awk '$2 { names[$2] = names[$2] " " $1 ";" } END { for (v in names) printf "%s {%s };\n", v, names[v] }' "$out.found" |
  sort >"$out.map"
soname=$(objdump -p "$libc" | awk '$1 == "SONAME" { print $2 }')
script=$(test -s "$out.map" && echo "-Wl,--version-script,$out.map" || true)
$CC -shared -nostdlib -s -Wl,-z,noseparate-code -Wl,--build-id=none -Wl,-soname,"$soname" $script -o "$out" "$out.s"
rm -f "$out.wanted" "$out.found" "$out.s" "$out.map"
