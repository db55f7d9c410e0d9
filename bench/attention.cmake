qr_bench(attention qr_attention)
