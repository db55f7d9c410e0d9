# The server with a fake engine and a fake model (their symbols come before those of the libraries), then the real daemon.
qr_criterion(unit server ROOMS qr_server qr_model qr_base TIMEOUT 180)
