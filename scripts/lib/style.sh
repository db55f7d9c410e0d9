# style.sh - clang-format and clang-tidy over the tree. Sourced; the caller stands in the root of the tree.

# Every C, C++ and CUDA file of the project.
style_sources() { find base blockmgr prefix_cache offload attention runtime include tests bench examples \
    \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -not -path '*/build/*' 2>/dev/null | sort; }

style_format() { style_sources | xargs clang-format --dry-run -Werror; }

# Rooms only, with the commands of the clang build: tests are read by people, and by three compilers' warnings. That build has
# no CUDA, so no commands for those folders; the CUDA tests build them with the warnings of every other file.
style_tidy() {
    find base blockmgr prefix_cache offload attention runtime -name '*.c' -not -path '*/cuda/*' 2>/dev/null | sort |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build/clang
}
