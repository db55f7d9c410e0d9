if(TARGET qr_server)
  qr_fuzz(http ROOMS qr_server qr_base MUTATIONS 20000)
endif()
