typedef int qr_prefix_cache_empty; /* replaced by the room's first source */
