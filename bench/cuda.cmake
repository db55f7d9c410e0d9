# The host's part of a CUDA step is plain C and needs neither nvcc nor a GPU.
qr_bench(cuda_plan qr_attention qr_base)
target_sources(bench_cuda_plan PRIVATE ${PROJECT_SOURCE_DIR}/attention/cuda/device_plan.c)
