# libquire-kv and libquire: the shared libraries, their headers, pkg-config files and CMake package.
set(QUIRE_KV_ROOMS qr_base qr_blockmgr qr_prefix_cache qr_attention qr_kv)
set(QUIRE_ROOMS qr_model qr_engine)
