qr_fuzz(gguf ROOMS qr_model qr_attention qr_base MUTATIONS 20000)

# Writes the corpus anew: make_gguf_corpus tests/fuzz/corpus/gguf
add_executable(make_gguf_corpus EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/make_gguf_corpus.c)
qr_compile(make_gguf_corpus)
target_link_libraries(make_gguf_corpus PRIVATE test_support_model qr_model qr_attention qr_base m)
