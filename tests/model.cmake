# Products and small operations of the model's CPU paths.
qr_criterion(unit model_cpu ROOMS qr_model qr_attention qr_base)
qr_criterion(prop model_cpu ROOMS qr_model qr_attention qr_base)
