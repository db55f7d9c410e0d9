# Tokenizer, text stream and chat templates.
if(NOT TARGET PkgConfig::JANSSON)
  pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
endif()

qr_criterion(unit tokenizer ROOMS qr_model qr_attention qr_base)

add_executable(test_golden_tokenizer ${CMAKE_CURRENT_SOURCE_DIR}/golden/tokenizer_goldens.c)
qr_compile(test_golden_tokenizer)
target_link_libraries(test_golden_tokenizer PRIVATE qr_model qr_attention qr_base PkgConfig::JANSSON m)

add_executable(test_tokenizer_driver ${CMAKE_CURRENT_SOURCE_DIR}/golden/tokenizer_driver.c)
qr_compile(test_tokenizer_driver)
target_link_libraries(test_tokenizer_driver PRIVATE qr_model qr_attention qr_base m)

# The model's file lies where scripts/check puts it; without it the test is skipped.
set(QUIRE_GOLDEN_DATA ${CMAKE_CURRENT_SOURCE_DIR}/golden/data)
add_test(NAME golden.tokenizer_smollm2 COMMAND sh -c
  "exec $<TARGET_FILE:test_golden_tokenizer> \"\${QUIRE_MODEL:-\${XDG_CACHE_HOME:-$HOME/.cache}/quire/models/SmolLM2-135M-Instruct.Q4_1.gguf}\" ${QUIRE_GOLDEN_DATA}/tokenizer_smollm2.jsonl lossy")
set_tests_properties(golden.tokenizer_smollm2 PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60 LABELS "golden;quick")

foreach(name IN ITEMS gpt-2 smollm llama-bpe qwen2)
  set(lossy)
  if(name STREQUAL qwen2) # normalises
    set(lossy lossy)
  endif()
  add_test(NAME golden.tokenizer_${name} COMMAND test_golden_tokenizer ${QUIRE_GOLDEN_DATA}/bpe_${name}.gguf
    ${QUIRE_GOLDEN_DATA}/tokenizer_${name}.jsonl ${lossy})
  set_tests_properties(golden.tokenizer_${name} PROPERTIES TIMEOUT 60 LABELS "golden;quick")
endforeach()

add_executable(test_golden_chat ${CMAKE_CURRENT_SOURCE_DIR}/golden/chat_goldens.c
  ${CMAKE_CURRENT_SOURCE_DIR}/unit/tokenizer/small_vocabulary.c)
qr_compile(test_golden_chat)
target_include_directories(test_golden_chat PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/unit/tokenizer)
target_link_libraries(test_golden_chat PRIVATE qr_model qr_attention qr_base PkgConfig::JANSSON m)
add_test(NAME golden.chat_templates COMMAND test_golden_chat ${QUIRE_GOLDEN_DATA}/chat_templates.jsonl)
set_tests_properties(golden.chat_templates PROPERTIES TIMEOUT 60 LABELS "golden;quick")

find_package(Python3 COMPONENTS Interpreter)
set(QUIRE_TEST_PYTHON ${Python3_EXECUTABLE} CACHE FILEPATH "Python that has the packages of the tests")
if(QUIRE_TEST_PYTHON) # against the tokenizers package; skipped where Python does not have it
  add_test(NAME golden.tokenizer_differential COMMAND ${QUIRE_TEST_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/golden/tokenizer_differential.py $<TARGET_FILE:test_tokenizer_driver> ${QUIRE_GOLDEN_DATA})
  set_tests_properties(golden.tokenizer_differential PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS "golden;full")
endif()
