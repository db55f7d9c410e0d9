/* text_stream.h - generated tokens to text that may be sent now.
 *
 * Holds back an unfinished UTF-8 character and the longest tail that could begin a stop string (R13, R14). What a stream
 * has given, joined, equals the text of the whole reply. Bytes that can never become a character come out as U+FFFD.
 *
 * Thread: one owner.
 */
#ifndef QR_MODEL_TEXT_STREAM_H
#define QR_MODEL_TEXT_STREAM_H

#include "runtime/model/stop_set.h"

typedef struct qr_text_stream qr_text_stream;

/* stops (NULL: none) is borrowed for the stream's life. Errors: NO_MEMORY. show_control: control tokens are printed by name
 * instead of being left out; a stop that is the name of one is met by the token either way. */
QUIRE_MUST_CHECK quire_status qr_text_stream_create(const qr_tokenizer *tokenizer, const qr_stop_set *stops, bool show_control,
                                                    qr_text_stream **stream);
void qr_text_stream_destroy(qr_text_stream *stream);

/* Feeds one token; allocates nothing. The stop that ends first counts, of those that end together the one that began first,
 * wherever tokens begin and end. *text gets what may be sent now (borrowed until the next call; may be empty). Returns true
 * when a stop string was completed: then *text ends right before it and nothing more may be fed. */
bool qr_text_stream_push(qr_text_stream *stream, quire_token token, qr_text *text);
/* The reply is over without a stop: gives the held tail. */
void qr_text_stream_finish(qr_text_stream *stream, qr_text *text);
/* Bytes given so far (for text offsets). */
size_t qr_text_stream_given_bytes(const qr_text_stream *stream);

/* Makes valid UTF-8 of any bytes (U+FFFD per maximal ill-formed part, as Unicode recommends). Returns a malloc'd string
 * that the caller owns, NUL-terminated besides *out_size; NULL when out of memory. */
char *qr_text_to_utf8(const char *data, size_t size, size_t *out_size);
bool qr_text_is_utf8(const char *data, size_t size);
#endif
