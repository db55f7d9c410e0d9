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
