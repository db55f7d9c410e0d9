# The server with a fake engine and a fake model; their symbols come before those of the libraries. The real daemon is
# tested with real clients in tests/e2e.
if(TARGET qr_server)
  qr_criterion(unit server ROOMS qr_server qr_model qr_base TIMEOUT 180)

  add_library(test_support_server STATIC ${CMAKE_CURRENT_SOURCE_DIR}/unit/server/fake_model.c
    ${CMAKE_CURRENT_SOURCE_DIR}/unit/server/fake_engine.c ${CMAKE_CURRENT_SOURCE_DIR}/unit/server/server_fixture.c)
  qr_compile(test_support_server)
  qr_plain_test(stress server_crowd ROOMS test_support_server qr_server test_support_server qr_model qr_base LABELS quick)
endif()
