qr_bench(matmul qr_model qr_attention qr_base)

# Whole steps of a real model, with the tests' stand-in for the KV manager.
qr_bench(step qr_model qr_attention qr_base)
target_sources(bench_step PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/forward_rig.c
  ${PROJECT_SOURCE_DIR}/tests/support/model_file.c)

# Opening a model, its fingerprint hashed or remembered.
qr_bench(load qr_model qr_attention qr_base)
target_sources(bench_load PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/model_file.c)
