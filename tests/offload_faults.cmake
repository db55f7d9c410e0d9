# Faults of the lower tiers: the parts that inject them, their own tests, the disk store among them, and the faulty command.
add_library(test_support_faults STATIC support/faults.c support/faulty_files.c support/faulty_journal.c)
qr_compile(test_support_faults)
target_link_libraries(test_support_faults PUBLIC qr_offload qr_base)

# System calls and allocations of the project's objects go through support/faulty_calls.c.
set(QUIRE_FAULTY_CALLS_SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/support/faulty_calls.c)
set(QUIRE_FAULTY_CALLS "")
foreach(call IN ITEMS preadv pwritev malloc calloc realloc aligned_alloc posix_memalign mmap)
  list(APPEND QUIRE_FAULTY_CALLS LINKER:--wrap=${call})
endforeach()

qr_criterion(unit faults ROOMS test_support_faults qr_offload qr_base)
target_sources(test_unit_faults PRIVATE ${QUIRE_FAULTY_CALLS_SOURCE})
target_link_options(test_unit_faults PRIVATE ${QUIRE_FAULTY_CALLS})

qr_criterion(prop offload ROOMS test_support_faults qr_offload qr_base TIMEOUT 300)

# The same over a hash that says nothing (R03): this executable's qr_hash_bytes comes before the library's.
file(GLOB constant_hash_offload CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/prop/offload/*.c)
add_executable(test_constant_hash_offload ${constant_hash_offload} ${PROJECT_SOURCE_DIR}/base/hash.c)
qr_compile(test_constant_hash_offload)
target_compile_definitions(test_constant_hash_offload PRIVATE QR_CONSTANT_HASH=1)
target_link_libraries(test_constant_hash_offload PRIVATE test_support_faults qr_offload qr_base PkgConfig::CRITERION m)
add_test(NAME prop.offload_constant_hash COMMAND test_constant_hash_offload --jobs 2)
set_tests_properties(prop.offload_constant_hash PROPERTIES TIMEOUT 300 LABELS "prop;quick")

# quire_faulty: the command over parts that fail as QUIRE_FAULTS says; beside `quire` at the top of the build folder.
if(TARGET qr_cli)
  add_executable(quire_faulty support/faulty_main.c ${QUIRE_FAULTY_CALLS_SOURCE})
  qr_compile(quire_faulty)
  target_link_libraries(quire_faulty PRIVATE test_support_faults qr_cli)
  target_link_options(quire_faulty PRIVATE ${QUIRE_FAULTY_CALLS})
  set_target_properties(quire_faulty PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  qr_house_test(no_faults COMMAND Python3::Interpreter ${QUIRE_HOUSE}/no_faults.py $<TARGET_FILE:quire_command>
    $<TARGET_FILE:quire_faulty>)
endif()
