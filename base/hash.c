typedef int qr_hash_empty;
