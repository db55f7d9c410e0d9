qr_criterion(unit engine ROOMS qr_engine)
