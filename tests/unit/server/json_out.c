#include "runtime/server/json_out.h"

#include <criterion/criterion.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

Test(server_json_out, places_commas) {
    qr_bytes out = {0};
    qr_json json = {.out = &out};
    qr_json_open(&json, '{');
    qr_json_put_int(&json, "a", -1);
    qr_json_key(&json, "b");
    qr_json_open(&json, '[');
    qr_json_open(&json, '[');
    qr_json_close(&json, ']');
    qr_json_null(&json);
    qr_json_bool(&json, true);
    qr_json_close(&json, ']');
    qr_json_put_text(&json, "c", NULL);
    qr_json_put_uint(&json, "d", UINT64_MAX);
    qr_json_put_real(&json, "e", INFINITY);
    qr_json_close(&json, '}');
    cr_assert_str_eq(out.data, "{\"a\":-1,\"b\":[[],null,true],\"c\":null,\"d\":18446744073709551615,\"e\":0}");
    qr_bytes_deinit(&out);
}

Test(server_json_out, any_bytes_become_a_valid_string) {
    qr_random random = {7};
    for (int round = 0; round < 3000; round++) {
        char data[24];
        size_t size = qr_random_below(&random, sizeof data);
        for (size_t i = 0; i < size; i++) data[i] = (char)qr_random_u64(&random);
        if (round % 3 == 0 && size > 4) memcpy(data, "\xf0\x9f\x99\x82", 4);
        qr_bytes out = {0};
        qr_json json = {.out = &out};
        qr_json_open(&json, '[');
        qr_json_string(&json, data, size);
        qr_json_close(&json, ']');
        json_t *root = json_loadb(out.data, out.size, JSON_ALLOW_NUL, NULL);
        cr_assert(root, "round %d: %s", round, out.data);
        json_decref(root);
        qr_bytes_deinit(&out);
    }
}

Test(server_json_out, valid_text_comes_back_as_it_was) {
    static const char text[] = "a\0b\x01\x1f\"\\/\b\f\n\r\t\x7f\xc3\xb6\xe6\xbc\xa2\xf0\x9f\x99\x82";
    qr_bytes out = {0};
    qr_json json = {.out = &out};
    qr_json_open(&json, '[');
    qr_json_string(&json, text, sizeof text - 1);
    qr_json_close(&json, ']');
    json_t *root = json_loadb(out.data, out.size, JSON_ALLOW_NUL, NULL);
    const json_t *string = json_array_get(root, 0);
    cr_assert_eq(json_string_length(string), sizeof text - 1);
    cr_assert_arr_eq(json_string_value(string), text, sizeof text - 1);
    json_decref(root);
    qr_bytes_deinit(&out);
}

Test(server_json_out, floats_read_back_as_the_same_bits) {
    static const float values[] = {0.0f, -0.5f, -1e30f, 1.1f, FLT_MIN, -FLT_MAX, 0.1f, -123456.78f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        qr_bytes out = {0};
        qr_json json = {.out = &out};
        qr_json_float(&json, values[i]);
        cr_assert_eq(strtof(out.data, NULL), values[i], "%s", out.data);
        qr_bytes_deinit(&out);
    }
    qr_bytes out = {0};
    qr_json json = {.out = &out};
    qr_json_float(&json, -INFINITY);
    cr_assert_str_eq(out.data, "-1e+30");
    qr_bytes_deinit(&out);
}
