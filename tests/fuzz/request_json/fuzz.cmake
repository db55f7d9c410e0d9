if(TARGET qr_server)
  add_library(test_support_server STATIC ${PROJECT_SOURCE_DIR}/tests/unit/server/fake_model.c
    ${PROJECT_SOURCE_DIR}/tests/unit/server/fake_engine.c)
  qr_compile(test_support_server)
  qr_fuzz(request_json ROOMS test_support_server qr_server test_support_server qr_model qr_base MUTATIONS 3000)
endif()
