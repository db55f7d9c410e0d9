# style.sh - clang-format and clang-tidy over the tree. Sourced; the caller stands in the root of the tree.

# Every C, C++ and CUDA file of the project. A new folder is found by itself.
style_sources() {
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print | sort
}

style_format() { style_sources | xargs clang-format --dry-run -Werror; }

# Rooms only, with the commands of the clang build: tests are read by people, and by three compilers' warnings. That build has
# no CUDA, so no commands for those folders; the CUDA tests build them with the warnings of every other file.
style_tidy() {
    style_sources | grep '\.c$' | grep -vE '^\./(tests|bench|examples)/|/cuda/' |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build/clang
}
