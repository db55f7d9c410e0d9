# The measuring programs of scripts/gpu-check, tried on the emulated device with tiny shapes: that they run, not how fast.
qr_emu_program(copy_rates MODES plain asan ROOMS qr_base
  SOURCES gpu/copy_rates.c ${PROJECT_SOURCE_DIR}/base/cuda/device_cuda.c ${PROJECT_SOURCE_DIR}/base/block_mover.c)
foreach(mode IN ITEMS plain asan)
  qr_emu_run(copy_rates ${mode} MODE ${mode} ARGS --smoke)
endforeach()
if(QR_CUDA_KERNELS)
  qr_emu_program(attention_rates MODES plain SOURCES gpu/attention_rates.cu KERNELS ROOMS qr_base)
  qr_emu_run(attention_rates plain MODE plain ARGS --smoke)
  add_test(NAME cuda.gpu_check COMMAND ${CMAKE_CURRENT_LIST_DIR}/gpu/check_test.sh ${PROJECT_SOURCE_DIR}
    ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  set_tests_properties(cuda.gpu_check PROPERTIES TIMEOUT 180 LABELS cuda)
endif()
add_test(NAME cuda.gpu_build COMMAND ${CMAKE_CURRENT_LIST_DIR}/gpu/build_test.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER}
  ${CMAKE_CXX_COMPILER} $<TARGET_FILE:qr_emulator>)
set_tests_properties(cuda.gpu_build PROPERTIES TIMEOUT 120 LABELS cuda)
add_test(NAME cuda.cost_model COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/cuda_cost_model --check
  ${PROJECT_SOURCE_DIR}/docs/CUDA.md)
set_tests_properties(cuda.cost_model PROPERTIES TIMEOUT 30 LABELS "cuda;cuda-quick")
foreach(test IN ITEMS page page_can_fail)
  set(self_test)
  if(test STREQUAL page_can_fail)
    set(self_test --self-test)
  endif()
  add_test(NAME house.cuda_${test} COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/house/cuda_page.py ${self_test}
    ${PROJECT_SOURCE_DIR})
  set_tests_properties(house.cuda_${test} PROPERTIES TIMEOUT 30 LABELS "house;quick;cuda;cuda-quick")
endforeach()
