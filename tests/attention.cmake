qr_criterion(unit attention ROOMS qr_attention)
if(TARGET test_unit_attention) # the host's plan for the GPU is plain C, built with or without nvcc
  target_sources(test_unit_attention PRIVATE ${PROJECT_SOURCE_DIR}/attention/cuda/device_plan.c)
endif()
qr_criterion(prop attention ROOMS qr_attention TIMEOUT 300)
if(TARGET test_prop_attention)
  target_sources(test_prop_attention PRIVATE unit/attention/scene.c)
endif()
