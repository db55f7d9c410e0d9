typedef int qr_blockmgr_empty; /* replaced by the room's first source */
