typedef int qr_assertion_empty;
