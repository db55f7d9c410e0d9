/* tokenizer_goldens.c - ids of recorded texts, equal to the reference tokenizer's in every row.
 *
 *   test_golden_tokenizer FILE.gguf ROWS.jsonl [lossy]
 * A row is {"text", "ids"}, ids by the `tokenizers` package. Decoding gives the text back; "lossy" where the vocabulary has
 * no token for some bytes or the tokenizer normalises its text. Without the model's file: exit 77.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "runtime/model/model_vocabulary.h"

static qr_tokenizer *load(const char *path) {
    quire_error error = {0};
    qr_gguf *gguf;
    qr_tokenizer *tokenizer;
    if (qr_gguf_open(path, &gguf, &error) || qr_model_vocabulary_read(gguf, &tokenizer, &error)) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        exit(1);
    }
    qr_gguf_close(gguf);
    return tokenizer;
}

static bool ids_equal(const json_t *ids, const qr_token_buffer *got) {
    if (json_array_size(ids) != got->count) return false;
    for (size_t i = 0; i < got->count; i++) {
        if (json_integer_value(json_array_get(ids, i)) != got->tokens[i]) return false;
    }
    return true;
}

static bool decodes_to(const qr_tokenizer *tokenizer, const qr_token_buffer *buffer, const char *text, size_t text_size) {
    char *bytes;
    size_t size, bad;
    if (qr_tokenizer_decode(tokenizer, buffer->tokens, buffer->count, false, &bytes, &size, &bad)) return false;
    bool same = size == text_size && memcmp(bytes, text, size) == 0;
    free(bytes);
    return same;
}

static bool row_holds(const qr_tokenizer *tokenizer, const char *line, bool lossy, qr_token_buffer *buffer) {
    json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
    const json_t *text = json_object_get(row, "text");
    buffer->count = 0;
    bool holds =
        json_is_string(text) && !qr_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), 0, buffer);
    holds = holds && ids_equal(json_object_get(row, "ids"), buffer);
    holds = holds && (lossy || decodes_to(tokenizer, buffer, json_string_value(text), json_string_length(text)));
    json_decref(row);
    return holds;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (access(argv[1], R_OK)) {
        fprintf(stderr, "%s is not here: skipped\n", argv[1]);
        return 77;
    }
    FILE *rows = fopen(argv[2], "r");
    if (!rows) return 2;
    bool lossy = argc > 3;
    qr_tokenizer *tokenizer = load(argv[1]);
    qr_token_buffer buffer = {0};
    char *line = NULL;
    size_t capacity = 0, count = 0, failed = 0;
    while (getline(&line, &capacity, rows) > 0) {
        count++;
        if (row_holds(tokenizer, line, lossy, &buffer)) continue;
        if (failed++ < 10) fprintf(stderr, "row %zu differs: %.200s\n", count, line);
    }
    printf("%zu rows, %zu differ\n", count, failed);
    free(line);
    fclose(rows);
    qr_token_buffer_deinit(&buffer);
    qr_tokenizer_destroy(tokenizer);
    return failed > 0 || count == 0;
}
