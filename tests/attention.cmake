qr_criterion(unit attention ROOMS qr_attention)
if(TARGET test_unit_attention) # the host's plan for the GPU is plain C, built with or without nvcc
  target_sources(test_unit_attention PRIVATE ${PROJECT_SOURCE_DIR}/attention/cuda/device_plan.c)
  add_test(NAME unit.attention_device_plan COMMAND test_unit_attention --jobs 2 --filter attention_device_plan/*)
  set_tests_properties(unit.attention_device_plan PROPERTIES TIMEOUT 120 LABELS "unit;quick;cuda;cuda-quick"
    FAIL_REGULAR_EXPRESSION "Tested: [^0-9]*0 ") # of a suite that has another name now
endif()
qr_criterion(prop attention ROOMS qr_attention TIMEOUT 300)
if(TARGET test_prop_attention)
  target_sources(test_prop_attention PRIVATE unit/attention/scene.c)
endif()
