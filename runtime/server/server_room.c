typedef int qr_server_empty; /* replaced by the room's first source */
