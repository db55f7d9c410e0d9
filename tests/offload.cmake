# The store on disk: formats, the store on real files, its threads.
qr_criterion(unit offload ROOMS test_support_faults qr_offload qr_blockmgr qr_base)
qr_plain_test(stress offload ROOMS qr_offload qr_blockmgr qr_base LABELS quick)
