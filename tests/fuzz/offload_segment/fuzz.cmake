if(TARGET qr_offload)
  qr_fuzz(offload_segment ROOMS qr_offload qr_base MUTATIONS 2000)

  # Writes the corpus anew: make_offload_segment_corpus tests/fuzz/corpus/offload_segment
  add_executable(make_offload_segment_corpus EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/make_offload_segment_corpus.c)
  qr_compile(make_offload_segment_corpus)
  target_link_libraries(make_offload_segment_corpus PRIVATE qr_offload qr_base)
endif()
