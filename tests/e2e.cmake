# Model files for tests/e2e, which pytest runs (scripts/check), not ctest.
add_executable(make_models ${CMAKE_CURRENT_SOURCE_DIR}/e2e/make_models.c)
qr_compile(make_models)
target_link_libraries(make_models PRIVATE test_support_model m)
