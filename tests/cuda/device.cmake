# The device seam and block movement on the emulated runtime. Compiled here from their sources, so that sanitizers see them.
set(QR_DEVICE_SOURCES ${CMAKE_CURRENT_LIST_DIR}/device_test.c ${PROJECT_SOURCE_DIR}/tests/support/block_traffic.c
  ${PROJECT_SOURCE_DIR}/base/cuda/device_cuda.c ${PROJECT_SOURCE_DIR}/base/block_mover.c
  ${PROJECT_SOURCE_DIR}/base/block_stage.c)
set(QR_DEVICE_WRAPS cudaMemcpyAsync cudaEventQuery cudaEventCreateWithFlags cudaEventDestroy cudaStreamCreateWithFlags
  cudaStreamDestroy cudaGetDeviceCount cudaEventRecord cudaStreamWaitEvent cudaDeviceGetAttribute cudaSetDevice cudaFree
  cudaHostUnregister cudaMemGetInfo)
list(TRANSFORM QR_DEVICE_WRAPS PREPEND "LINKER:--wrap=")

qr_emu_program(device SOURCES ${QR_DEVICE_SOURCES} MODES plain asan ROOMS qr_base) # one thread: nothing for TSan
foreach(mode IN ITEMS plain asan)
  target_link_options(test_cuda_device_${mode} PRIVATE ${QR_DEVICE_WRAPS})
  qr_emu_run(device ${mode} MODE ${mode} QUICK)
endforeach()
qr_emu_run(device eager MODE plain ENV EMU_STREAMS=eager)
qr_emu_run(device random MODE plain QUICK ENV EMU_STREAMS=random)
