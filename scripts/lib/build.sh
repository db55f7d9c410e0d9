# build.sh - configuring and building presets. Sourced; the caller stands in the root of the tree.

# build_configure PRESET [CMAKE-OPTION...]
build_configure() {
    local preset=$1
    shift
    cmake --preset "$preset" "$@"
}

# build_targets PRESET [TARGET...]: all targets without names
build_targets() {
    local preset=$1
    shift
    cmake --build --preset "$preset" ${@:+--target "$@"}
}

# build_list PRESET PATTERN: names of the test programs that match, one a line
build_list() { ninja -C "build/$1" -t targets all | sed -n 's/: phony$//p' | grep -E "^($2)$" | sort -u; }
