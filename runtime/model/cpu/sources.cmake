# Products and small operations of the model's CPU paths. Only these files get an instruction set's flags; which of them
# runs is decided at run time (ops_path.c).
target_sources(qr_model PRIVATE
  cpu/matmul.h
  cpu/matmul_scalar.c
  cpu/ops_path.c cpu/ops_path.h
  cpu/ops_scalar.c cpu/ops.inc
  cpu/panel.c cpu/panel.h
  cpu/rope_table.c
  cpu/weight_format.c cpu/weight_format.h)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(qr_model PRIVATE cpu/matmul_avx2.c cpu/ops_avx2.c cpu/matmul_avx512.c cpu/ops_avx512.c)
  set_source_files_properties(cpu/matmul_avx2.c cpu/ops_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(cpu/matmul_avx512.c cpu/ops_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mfma;-mf16c;-mprefer-vector-width=512")
endif()
