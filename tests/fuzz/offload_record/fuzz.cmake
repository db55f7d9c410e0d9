if(TARGET qr_offload)
  qr_fuzz(offload_record ROOMS qr_offload qr_base MUTATIONS 20000)

  # Writes the corpus anew: make_offload_record_corpus tests/fuzz/corpus/offload_record
  add_executable(make_offload_record_corpus EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/make_offload_record_corpus.c)
  qr_compile(make_offload_record_corpus)
  target_link_libraries(make_offload_record_corpus PRIVATE qr_offload qr_base)
endif()
