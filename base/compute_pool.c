typedef int qr_compute_pool_empty;
