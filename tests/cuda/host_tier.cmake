# The KV manager's tiers over the emulated runtime: the rooms as they are, device_cuda beside them.
add_executable(test_cuda_host_tier_plain host_tier_test.c ${PROJECT_SOURCE_DIR}/tests/prop/kv/kv_model.c
  ${PROJECT_SOURCE_DIR}/tests/prop/kv/tiers_model.c ${PROJECT_SOURCE_DIR}/tests/support/fake_store.c
  ${PROJECT_SOURCE_DIR}/base/cuda/device_cuda.c)
qr_compile(test_cuda_host_tier_plain)
target_link_libraries(test_cuda_host_tier_plain PRIVATE qr_kv qr_prefix_cache qr_blockmgr qr_base qr_emulator
  PkgConfig::CRITERION m)
set_target_properties(test_cuda_host_tier_plain PROPERTIES LINKER_LANGUAGE CXX ENABLE_EXPORTS ON)
qr_emu_run(host_tier plain MODE plain QUICK)
qr_emu_run(host_tier eager MODE plain ENV EMU_STREAMS=eager)
qr_emu_run(host_tier random MODE plain ENV EMU_STREAMS=random)
