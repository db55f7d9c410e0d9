qr_criterion(unit engine ROOMS qr_engine)
qr_criterion(sim engine ROOMS qr_engine TIMEOUT 300)
