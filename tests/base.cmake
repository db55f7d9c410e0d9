# Tests of base/, and of what holds for the whole house.
qr_criterion(unit base ROOMS qr_base)
qr_plain_test(stress compute_pool ROOMS qr_base TIMEOUT 300)
qr_plain_test(stress mailbox ROOMS qr_base TIMEOUT 300)
