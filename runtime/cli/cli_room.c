typedef int qr_cli_empty; /* replaced by the room's first source */
