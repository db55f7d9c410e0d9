typedef int qr_log_empty;
