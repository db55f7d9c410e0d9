# Products and small operations of the model's CPU paths.
qr_criterion(unit model_cpu ROOMS qr_model qr_attention qr_base)
qr_criterion(prop model_cpu ROOMS qr_model qr_attention qr_base)
target_compile_definitions(test_unit_model_cpu PRIVATE QR_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/golden/data")

# GGUF files, models and the forward pass. Tests write their own small models.
add_library(test_support_model STATIC support/forward_rig.c support/gguf_writer.c support/golden_case.c support/model_file.c
  support/tiny_model.c support/tiny_variants.c)
qr_compile(test_support_model)
target_link_libraries(test_support_model PUBLIC qr_model)
qr_criterion(unit model TIMEOUT 240 ROOMS test_support_model qr_model qr_attention qr_base)
target_compile_definitions(test_unit_model PRIVATE QR_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/golden/data")
