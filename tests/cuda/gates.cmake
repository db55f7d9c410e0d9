# The static gates: nvcc's machine code of every kernel, judged by scripts/cuda_gates for each architecture that was built.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(QR_GATES ${PROJECT_SOURCE_DIR}/scripts/cuda_gates)
add_test(NAME cuda.gates.can_fail COMMAND Python3::Interpreter ${QR_GATES} --self-test)
set_tests_properties(cuda.gates.can_fail PROPERTIES TIMEOUT 30 LABELS "cuda;cuda-quick")

if(TARGET qr_attention_cuda)
  add_executable(test_cuda_kernel_facts kernel_facts.cu)
  qr_emu_compile(test_cuda_kernel_facts plain)
  foreach(arch IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(NOT arch MATCHES "-virtual$")
      string(REPLACE "-real" "" arch ${arch})
      add_test(NAME cuda.gates.sm_${arch} COMMAND Python3::Interpreter ${QR_GATES} --library
        $<TARGET_FILE:qr_attention_cuda> --facts $<TARGET_FILE:test_cuda_kernel_facts> --arch sm_${arch} --table)
      set_tests_properties(cuda.gates.sm_${arch} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 LABELS cuda)
    endif()
  endforeach()
endif()
