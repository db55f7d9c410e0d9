typedef int qr_attention_empty; /* replaced by the room's first source */
