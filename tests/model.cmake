# Products and small operations of the model's CPU paths.
qr_criterion(unit model_cpu ROOMS qr_model qr_attention qr_base)
qr_criterion(prop model_cpu ROOMS qr_model qr_attention qr_base)
target_compile_definitions(test_unit_model_cpu PRIVATE QR_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/golden/data")
