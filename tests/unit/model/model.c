/* Opening whole models: information, header-only opening, special ids, truncations, KV groups. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/model/model.h"
#include "tests/support/tiny_model.h"

static quire_status open_bytes(const void *data, size_t size, const quire_model_options *options, quire_model **model,
                               quire_error *error) {
    char path[32];
    write_temporary(data, size, path);
    quire_status status = quire_model_open(path, options, model, error);
    unlink(path);
    return status;
}

static quire_status open_writer(gguf_writer *w, quire_model **model, quire_error *error) {
    size_t size;
    uint8_t *file = gguf_writer_finish(w, &size);
    memset(error, 0, sizeof *error);
    quire_status status = open_bytes(file, size, NULL, model, error);
    free(file);
    gguf_writer_deinit(w);
    return status;
}

Test(model_model, information_and_header_only_agree) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_K);
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    quire_model *whole, *header;
    quire_error error;
    cr_assert_eq(open_bytes(file, size, NULL, &whole, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(open_bytes(file, size, &(quire_model_options){.header_only = true}, &header, &error), QUIRE_OK);
    const quire_model_info *a = quire_model_get_info(whole), *b = quire_model_get_info(header);
    cr_assert_str_eq(a->name, "tiny");
    cr_assert_str_eq(a->architecture, "llama");
    cr_assert_str_eq(a->quantization, "Q4_K");
    cr_assert_eq(a->file_bytes, size);
    cr_assert_eq(a->mapped_bytes, 0);
    cr_assert_eq(a->weight_bytes, b->weight_bytes);
    cr_assert_eq(a->parameter_count, b->parameter_count);
    cr_assert_eq(a->layer_count, 2);
    cr_assert_eq(a->vocabulary_size, TINY_VOCABULARY);
    cr_assert_neq(a->fingerprint, 0);
    cr_assert_eq(b->fingerprint, 0);
    cr_assert_not(a->has_chat_template);
    cr_assert_eq(qr_tokenizer_bos(qr_model_tokenizer(header)), 1);
    cr_assert_eq(qr_tokenizer_token_count(qr_model_tokenizer(whole)), TINY_VOCABULARY);
    quire_model_close(whole);
    quire_model_close(header);
    free(file);
}

Test(model_model, kv_groups_come_from_declared_lengths) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    tiny.key_dim = 32;
    tiny.value_dim = 48;
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    quire_model *model;
    cr_assert_eq(open_bytes(file, size, NULL, &model, NULL), QUIRE_OK);
    quire_kv_config config = {.block_tokens = 16};
    quire_model_kv_groups(model, QUIRE_KV_F16, QUIRE_KV_BF16, &config);
    cr_assert_eq(config.group_count, 1);
    cr_assert_eq(config.groups[0].layer_count, 2);
    cr_assert_eq(config.groups[0].kv_head_count, 2);
    cr_assert_eq(config.groups[0].key_dim, 32);
    cr_assert_eq(config.groups[0].value_dim, 48);
    cr_assert_eq(config.groups[0].key_type, QUIRE_KV_F16);
    cr_assert_eq(config.groups[0].value_type, QUIRE_KV_BF16);
    cr_assert_eq(config.block_tokens, 16);
    quire_model_close(model);
    free(file);
}

Test(model_model, special_ids_outside_the_vocabulary) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.unknown_token_id",
                                       "tokenizer.ggml.padding_token_id"};
    static const uint32_t ids[] = {TINY_VOCABULARY, INT32_MAX, UINT32_MAX};
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    for (size_t k = 0; k < 5; k++)
        for (size_t i = 0; i < 3; i++) {
            quire_model *model;
            quire_error error;
            gguf_writer w = {.omit = keys[k]};
            tiny_model_keys(&tiny, &w);
            tiny_model_tensors(&tiny, &w);
            w.omit = NULL;
            gguf_writer_u32(&w, keys[k], ids[i]);
            cr_assert_eq(open_writer(&w, &model, &error), QUIRE_FORMAT);
            cr_assert_null(model);
            cr_assert_not_null(strstr(error.text, keys[k]), "%s", error.text);
        }
}

Test(model_model, vocabulary_and_embedding_must_agree) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    gguf_writer w = {0};
    quire_model *model;
    quire_error error;
    tiny_model_keys(&tiny, &w);
    tiny.vocabulary += 16;
    tiny_model_tensors(&tiny, &w);
    cr_assert_eq(open_writer(&w, &model, &error), QUIRE_FORMAT);
    cr_assert_not_null(strstr(error.text, "token_embd.weight"), "%s", error.text);
}

/* Every byte of the header, and some of the tensor data: refused, quickly, and nothing is left behind. */
Test(model_model, truncated_files_are_refused_within_a_second, .timeout = 120) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_0);
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    for (size_t length = 0; length < size; length += length < 12000 ? 97 : 4001) {
        quire_model *model;
        quire_error error;
        uint64_t begin = qr_clock_us();
        cr_assert_eq(open_bytes(file, length, NULL, &model, &error), QUIRE_FORMAT, "at %zu", length);
        cr_assert_lt(qr_clock_us() - begin, 1000000);
        cr_assert_null(model);
        cr_assert_neq(error.source[0], 0);
        cr_assert_neq(error.text[0], 0);
    }
    free(file);
}

Test(model_model, unknown_cpu_paths_and_files_are_refused) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_0);
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    quire_model *model;
    quire_error error;
    cr_assert_eq(open_bytes(file, size, &(quire_model_options){.cpu_path = "z80"}, &model, &error), QUIRE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, "z80"));
    cr_assert_eq(open_bytes(file, size, &(quire_model_options){.cpu_path = "scalar"}, &model, &error), QUIRE_OK);
    cr_assert_str_eq(qr_model_cpu_path(model), "scalar");
    quire_model_close(model);
    cr_assert_eq(quire_model_open("/nowhere/model.gguf", NULL, &model, &error), QUIRE_IO);
    cr_assert_str_eq(error.source, "/nowhere/model.gguf");
    quire_model_close(NULL);
    free(file);
}

Test(model_model, odd_names_become_valid_text) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    char name[300] = "\xff bad \xc3";
    quire_model *model;
    quire_error error;
    for (size_t i = strlen(name); i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 3); /* é, two bytes each */
    gguf_writer w = {.omit = "general.name"};
    tiny_model_keys(&tiny, &w);
    tiny_model_tensors(&tiny, &w);
    w.omit = NULL;
    gguf_writer_text(&w, "general.name", name);
    cr_assert_eq(open_writer(&w, &model, &error), QUIRE_OK, "%s", error.text);
    const char *shown = quire_model_get_info(model)->name;
    cr_assert_gt(strlen(shown), 120);
    cr_assert_eq(strncmp(shown, "\xef\xbf\xbd bad ", 8), 0);
    cr_assert_eq((unsigned char)shown[strlen(shown) - 1], 0xa9); /* cut between characters */
    quire_model_close(model);
}
