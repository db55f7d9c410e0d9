typedef int qr_error_empty;
