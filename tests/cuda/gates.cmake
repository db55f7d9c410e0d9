# The static gates: nvcc's machine code of every kernel, judged by scripts/cuda_gates for each architecture that ships: from the
# library where the build makes it for that one, else compiled by the test.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(QR_GATES ${PROJECT_SOURCE_DIR}/scripts/cuda_gates)
add_test(NAME cuda.gates.can_fail COMMAND Python3::Interpreter ${QR_GATES} --self-test)
set_tests_properties(cuda.gates.can_fail PROPERTIES TIMEOUT 30 LABELS "cuda;cuda-quick")

if(TARGET qr_attention_cuda)
  add_executable(test_cuda_kernel_facts kernel_facts.cu)
  qr_emu_compile(test_cuda_kernel_facts plain)
  set(QR_BUILT_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  list(FILTER QR_BUILT_ARCHITECTURES EXCLUDE REGEX "-virtual$")
  list(TRANSFORM QR_BUILT_ARCHITECTURES REPLACE "-real$" "")
  foreach(arch IN ITEMS 80 86 89 90a 100 120)
    set(QR_GATE_CODE --compile ${QUIRE_NVCC} ${QR_NVCC_FLAGS})
    if(arch IN_LIST QR_BUILT_ARCHITECTURES)
      set(QR_GATE_CODE --library $<TARGET_FILE:qr_attention_cuda>)
    endif()
    set(QR_GATE_PAGE "")
    if(arch STREQUAL 90a) # the one whose table docs/CUDA.md has
      set(QR_GATE_PAGE --check ${PROJECT_SOURCE_DIR}/docs/CUDA.md --nvcc ${CMAKE_CUDA_COMPILER_VERSION})
    endif()
    add_test(NAME cuda.gates.sm_${arch} COMMAND Python3::Interpreter ${QR_GATES} --facts
      $<TARGET_FILE:test_cuda_kernel_facts> --arch sm_${arch} --table ${QR_GATE_PAGE} ${QR_GATE_CODE})
    set_tests_properties(cuda.gates.sm_${arch} PROPERTIES TIMEOUT 180 SKIP_RETURN_CODE 77 LABELS cuda)
  endforeach()
endif()
