if(TARGET qr_offload)
  qr_bench(offload qr_offload qr_base)
endif()
