typedef int qr_mailbox_empty;
