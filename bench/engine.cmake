qr_bench(engine qr_engine)
