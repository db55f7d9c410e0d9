/* status.c - names and messages of quire_status, from the one list in <quire/status.h>. */
#include <quire/status.h>

const char *quire_status_name(quire_status status) {
    static const char *const names[] = {
#define STATUS_NAME(name, message) #name,
        QUIRE_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    };
    return (unsigned)status < QUIRE_STATUS_COUNT ? names[status] : "UNKNOWN";
}

const char *quire_status_message(quire_status status) {
    static const char *const messages[] = {
#define STATUS_MESSAGE(name, message) message,
        QUIRE_STATUS_LIST(STATUS_MESSAGE)
#undef STATUS_MESSAGE
    };
    return (unsigned)status < QUIRE_STATUS_COUNT ? messages[status] : "unknown status";
}
