if(TARGET qr_server)
  qr_fuzz(request_json ROOMS test_support_server qr_server test_support_server qr_model qr_base MUTATIONS 3000)
endif()
