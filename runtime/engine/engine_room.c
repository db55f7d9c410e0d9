typedef int qr_engine_empty; /* replaced by the room's first source */
