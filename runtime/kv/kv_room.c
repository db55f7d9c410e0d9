typedef int qr_kv_empty; /* replaced by the room's first source */
