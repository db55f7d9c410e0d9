/* tokenizer_driver.c - a tokenizer behind a pipe, for tokenizer_differential.py.
 *
 *   test_tokenizer_driver FILE.gguf < requests > answers
 * A request is two 32-bit words (encode flags, size in bytes) and the text; its answer is a 32-bit count, the ids, a 32-bit
 * size and the bytes that the ids decode to. All words in the machine's order.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/model_vocabulary.h"

static void fail(const char *what, const quire_error *error) {
    fprintf(stderr, "tokenizer_driver: %s: %s\n", what, error ? error->text : "failed");
    exit(1);
}

static qr_tokenizer *load(const char *path) {
    quire_error error = {0};
    qr_gguf *gguf;
    qr_tokenizer *tokenizer;
    if (qr_gguf_open(path, &gguf, &error)) fail(path, &error);
    if (qr_model_vocabulary_read(gguf, &tokenizer, &error)) fail(path, &error);
    qr_gguf_close(gguf);
    return tokenizer;
}

static bool read_all(void *to, size_t size) { return fread(to, 1, size, stdin) == size; }

static void write_block(uint32_t count, const void *data, size_t size) {
    if (fwrite(&count, sizeof count, 1, stdout) != 1 || fwrite(data, 1, size, stdout) != size) fail("write", NULL);
}

int main(int argc, char **argv) {
    if (argc != 2) fail("usage: test_tokenizer_driver FILE.gguf", NULL);
    qr_tokenizer *tokenizer = load(argv[1]);
    qr_token_buffer buffer = {0};
    for (uint32_t head[2]; read_all(head, sizeof head);) {
        char *text = malloc(head[1] + 1u), *decoded;
        size_t size, bad;
        if (!text || !read_all(text, head[1])) fail("short request", NULL);
        buffer.count = 0;
        if (qr_tokenizer_encode(tokenizer, text, head[1], head[0], &buffer)) fail("encode", NULL);
        if (qr_tokenizer_decode(tokenizer, buffer.tokens, buffer.count, true, &decoded, &size, &bad)) fail("decode", NULL);
        write_block((uint32_t)buffer.count, buffer.tokens, buffer.count * sizeof *buffer.tokens);
        write_block((uint32_t)size, decoded, size);
        free(decoded);
        free(text);
    }
    qr_token_buffer_deinit(&buffer);
    qr_tokenizer_destroy(tokenizer);
    return 0;
}
