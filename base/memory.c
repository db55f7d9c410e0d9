typedef int qr_memory_empty;
