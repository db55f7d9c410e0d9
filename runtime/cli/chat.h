/* chat.h - `quire chat`: a conversation with the daemon, at a terminal or with --ask. */
#ifndef QR_CLI_CHAT_H
#define QR_CLI_CHAT_H

int qr_command_chat(int argc, char **argv);
#endif
