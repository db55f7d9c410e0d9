typedef int qr_clock_empty;
