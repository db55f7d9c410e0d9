typedef int qr_status_empty;
