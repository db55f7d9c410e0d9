qr_criterion(unit blockmgr ROOMS qr_blockmgr qr_base)
qr_criterion(unit prefix_cache ROOMS qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(unit kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(prop kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(prop prefix_cache ROOMS qr_prefix_cache qr_blockmgr qr_base)

# The example is compiled as a stranger would, against the public headers only.
add_executable(example_kv_prefix_reuse ${PROJECT_SOURCE_DIR}/examples/kv_prefix_reuse.c)
target_compile_options(example_kv_prefix_reuse PRIVATE ${QUIRE_WARNINGS} ${QUIRE_SANITIZE_FLAGS})
target_link_options(example_kv_prefix_reuse PRIVATE ${QUIRE_SANITIZE_FLAGS})
target_link_libraries(example_kv_prefix_reuse PRIVATE quire-kv)
add_test(NAME example.kv_prefix_reuse COMMAND example_kv_prefix_reuse)
set_tests_properties(example.kv_prefix_reuse PROPERTIES LABELS "example;quick")
