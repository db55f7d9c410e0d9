typedef int qr_model_empty; /* replaced by the room's first source */
