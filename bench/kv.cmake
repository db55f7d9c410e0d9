qr_bench(kv qr_kv qr_prefix_cache qr_blockmgr qr_base)
