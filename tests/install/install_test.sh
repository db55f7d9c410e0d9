#!/bin/sh
# install_test.sh BUILD_DIR SOURCE_DIR CC - installs libquire-kv into a fresh prefix and builds strangers' programs on it,
# by pkg-config and by find_package, C and C++, shared and static. Exit 77 (skipped) without a C++ compiler.
set -eu
build=$1 source=$2 cc=$3
case $cc in *clang*) cxx=clang++ ;; *) cxx=c++ ;; esac
command -v "$cxx" >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" --component kv >"$work/install.log" || { cat "$work/install.log"; exit 1; }
library=$(find "$prefix" -name 'libquire-kv.so')
libdir=$(dirname "$library")

echo "exports are quire_* only"
nm -D --defined-only "$library" | awk '$3 !~ /^quire_/ { print "exported:", $3; bad = 1 } END { exit bad }'

# The prefix of this install is not the configured one: the file finds its own place.
pc() { PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" quire-kv; }
consumer=$source/tests/install/consumer
echo "pkg-config, C and C++, shared"
$cc -std=c11 -Wall -Wextra -Werror $(pc --cflags) "$consumer/consumer.c" -o "$work/c" $(pc --libs)
$cxx -Wall -Wextra -Werror $(pc --cflags) "$consumer/consumer.cpp" -o "$work/cxx" $(pc --libs)
LD_LIBRARY_PATH=$libdir "$work/c"
LD_LIBRARY_PATH=$libdir "$work/cxx"
echo "pkg-config, static, and the examples"
$cc -std=c11 $(pc --cflags) "$consumer/consumer.c" -o "$work/static" "$libdir/libquire-kv.a" $(pc --static --libs | sed 's/-lquire-kv//')
"$work/static"
for example in kv_prefix_reuse kv_disk_tier; do
    $cc -std=c11 $(pc --cflags) "$source/examples/$example.c" -o "$work/example" $(pc --libs)
    LD_LIBRARY_PATH=$libdir "$work/example"
done

echo "find_package"
cmake -S "$consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    >"$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; exit 1; }
cmake --build "$work/consumer" >"$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; exit 1; }
for program in consumer_c consumer_cxx consumer_static; do "$work/consumer/$program"; done
