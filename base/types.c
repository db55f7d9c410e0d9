typedef int qr_types_empty;
