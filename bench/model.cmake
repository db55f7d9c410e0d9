qr_bench(matmul qr_model qr_attention qr_base)
