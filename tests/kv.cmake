qr_criterion(unit blockmgr ROOMS qr_blockmgr qr_base)
qr_criterion(unit prefix_cache ROOMS qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(unit kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
target_sources(test_unit_kv PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_store.c)
qr_criterion(prop kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
target_sources(test_prop_kv PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_store.c)
qr_criterion(prop prefix_cache ROOMS qr_prefix_cache qr_blockmgr qr_base)

# R03 in every run: the same tests over a hash that says nothing. The executable's qr_hash_bytes comes before the
# library's.
file(GLOB constant_hash_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/unit/kv/*.c
  ${CMAKE_CURRENT_SOURCE_DIR}/prop/kv/*.c)
add_executable(test_constant_hash_kv ${constant_hash_sources} ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_store.c
  ${PROJECT_SOURCE_DIR}/base/hash.c)
qr_compile(test_constant_hash_kv)
target_compile_definitions(test_constant_hash_kv PRIVATE QR_CONSTANT_HASH=1)
target_link_libraries(test_constant_hash_kv PRIVATE qr_kv qr_prefix_cache qr_blockmgr qr_base PkgConfig::CRITERION m)
add_test(NAME unit.kv_constant_hash COMMAND test_constant_hash_kv --jobs 2)
set_tests_properties(unit.kv_constant_hash PROPERTIES TIMEOUT 120 LABELS "unit;prop;quick")

file(GLOB constant_hash_tree_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/unit/prefix_cache/*.c
  ${CMAKE_CURRENT_SOURCE_DIR}/prop/prefix_cache/tree_*.c)
add_executable(test_constant_hash_prefix_cache ${constant_hash_tree_sources} ${PROJECT_SOURCE_DIR}/base/hash.c)
qr_compile(test_constant_hash_prefix_cache)
target_compile_definitions(test_constant_hash_prefix_cache PRIVATE QR_CONSTANT_HASH=1)
target_link_libraries(test_constant_hash_prefix_cache PRIVATE qr_prefix_cache qr_blockmgr qr_base PkgConfig::CRITERION m)
add_test(NAME unit.prefix_cache_constant_hash COMMAND test_constant_hash_prefix_cache --jobs 2)
set_tests_properties(unit.prefix_cache_constant_hash PROPERTIES TIMEOUT 120 LABELS "unit;prop;quick")

# The examples are compiled as a stranger would, against the public headers only.
foreach(example kv_prefix_reuse kv_disk_tier)
  add_executable(example_${example} ${PROJECT_SOURCE_DIR}/examples/${example}.c)
  target_compile_options(example_${example} PRIVATE ${QUIRE_WARNINGS} ${QUIRE_SANITIZE_FLAGS})
  target_link_options(example_${example} PRIVATE ${QUIRE_SANITIZE_FLAGS})
  target_link_libraries(example_${example} PRIVATE quire-kv)
  add_test(NAME example.${example} COMMAND example_${example})
  set_tests_properties(example.${example} PROPERTIES LABELS "example;quick")
endforeach()
