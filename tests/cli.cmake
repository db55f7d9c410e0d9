# Tests of runtime/cli. The quire command itself is tested end to end (tests/e2e).
if(TARGET qr_cli)
  qr_criterion(unit cli ROOMS qr_cli qr_server qr_engine qr_model qr_kv qr_base)
endif()
