qr_criterion(unit base ROOMS qr_base)
