#include "runtime/cli/terminal.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"

void qr_terminal_write(FILE *file, const char *text, size_t size) {
    char safe[8];
    for (size_t i = 0; i < size;) {
        size_t length = qr_utf8_length(text + i, size - i);
        if (text[i] == '\n' || text[i] == '\t') fputc(text[i], file);
        else fwrite(safe, 1, qr_text_sanitize(safe, sizeof safe, text + i, length ? length : 1), file);
        i += length ? length : 1;
    }
}

void qr_terminal_note(FILE *file, const char *format, ...) {
    bool dim = isatty(fileno(file));
    va_list arguments;
    va_start(arguments, format);
    if (dim) fputs("\x1b[2m", file);
    vfprintf(file, format, arguments);
    fputs(dim ? "\x1b[0m\n" : "\n", file);
    va_end(arguments);
    fflush(file);
}

int qr_terminal_fail(const char *command, const quire_error *error) {
    const char *text = error->text[0] ? error->text : quire_status_message(error->status);
    bool named = error->source[0] != 0, placed = error->offset != QR_NO_OFFSET;
    fflush(stdout); /* what was said before comes first */
    fprintf(stderr, "quire %s: %s%s%s", command, error->source, named ? ": " : "", text);
    if (placed) fprintf(stderr, " (at byte %llu)", (unsigned long long)error->offset);
    fputc('\n', stderr);
    return 1;
}

int qr_interrupt_open(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0) return -1;
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

bool qr_interrupt_take(int fd) {
    struct signalfd_siginfo info;
    bool taken = false;
    while (fd >= 0 && read(fd, &info, sizeof info) == (ssize_t)sizeof info) taken = true;
    return taken;
}
