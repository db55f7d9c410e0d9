qr_criterion(unit blockmgr ROOMS qr_blockmgr qr_base)
qr_criterion(unit prefix_cache ROOMS qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(unit kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
qr_criterion(prop kv ROOMS qr_kv qr_prefix_cache qr_blockmgr qr_base)
