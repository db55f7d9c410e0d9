#include "runtime/kv/namespaces.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/kv/kv_rig.h"

Test(kv_namespaces, equal_keys_of_any_bytes_have_one_id) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_namespace_id a, b, c, empty;
    unsigned char key[500];
    memset(key, 0, sizeof key);
    cr_assert_eq(quire_kv_namespace_open(kv, key, 500, &a), QUIRE_OK);
    cr_assert_eq(quire_kv_namespace_open(kv, key, 499, &b), QUIRE_OK);
    cr_assert_neq(a, b, "a key is its length, too");
    key[450] = 1;
    cr_assert_eq(quire_kv_namespace_open(kv, key, 500, &c), QUIRE_OK);
    cr_assert(c != a && c != b);
    key[450] = 0;
    cr_assert_eq(quire_kv_namespace_open(kv, key, 500, &c), QUIRE_OK);
    cr_assert_eq(c, a);
    cr_assert_eq(quire_kv_namespace_open(kv, NULL, 0, &empty), QUIRE_OK);
    cr_assert_eq(empty, 0);
    cr_assert(quire_kv_namespace_find(kv, key, 499, &c) && c == b);
    cr_assert_not(quire_kv_namespace_find(kv, key, 498, &c), "looking makes none");
    rig_destroy(kv);
}

Test(kv_namespaces, a_place_is_reused_when_nobody_uses_it_and_the_empty_ones_go_first) {
    quire_kv_config config = rig_config(); /* 4 namespaces, one of them the empty key's */
    quire_kv *kv = rig_create(&config);
    quire_namespace_id held, used, cached, id;
    quire_token tokens[32];
    quire_seq_id seq;
    rig_count_up(tokens, 32, 1);
    cr_assert_eq(quire_kv_namespace_open(kv, "held", 4, &held), QUIRE_OK);
    cr_assert_eq(quire_kv_namespace_open(kv, "used", 4, &used), QUIRE_OK);
    cr_assert_eq(quire_kv_namespace_open(kv, "cached", 6, &cached), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_open(kv, used, &seq), QUIRE_OK);
    rig_run(kv, cached, tokens, 32, 32);
    quire_kv_namespace_close(kv, used);
    quire_kv_namespace_close(kv, cached);
    cr_assert_eq(quire_kv_namespace_open(kv, "new", 3, &id), QUIRE_OK);
    cr_assert_eq(id, cached, "all others are used");
    cr_assert_eq(rig_stats(kv).block_cached, 0, "its blocks went with it");
    cr_assert_eq(rig_match(kv, id, tokens, 32).miss, QUIRE_KV_MISS_NEVER_STORED, "and nothing of its past stayed");
    cr_assert_eq(quire_kv_namespace_open(kv, "newer", 5, &cached), QUIRE_NO_MEMORY, "held, held and used");
    rig_run(kv, id, tokens, 32, 32);
    quire_kv_namespace_close(kv, id);
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_namespace_open(kv, "newer", 5, &cached), QUIRE_OK);
    cr_assert_eq(cached, used, "an empty one goes before one with blocks");
    rig_destroy(kv);
}

Test(kv_namespaces, a_key_that_does_not_fit_is_refused_and_takes_nothing) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    static char key[1 << 20];
    quire_namespace_id id;
    cr_assert_eq(quire_kv_namespace_open(kv, key, sizeof key, &id), QUIRE_NO_MEMORY);
    for (int i = 0; i < 100; i++) {
        key[0] = (char)i;
        cr_assert_eq(quire_kv_namespace_open(kv, key, 50000, &id), QUIRE_OK, "chunks come back");
        quire_kv_namespace_close(kv, id);
    }
    rig_destroy(kv);
}

/* As many keys as there are places, each with something in the cache, must not keep the next one out. */
Test(kv_namespaces, any_number_of_keys_of_the_longest_length_follow_each_other) {
    quire_kv_config config = rig_config();
    config.max_namespaces = 8;
    config.block_count = 64;
    quire_kv *kv = rig_create(&config);
    unsigned char key[QUIRE_NAMESPACE_KEY_MAX] = {0};
    quire_namespace_id held[8], id;
    quire_token tokens[32];
    rig_count_up(tokens, 32, 1);
    for (int i = 1; i <= 100; i++) {
        key[0] = (unsigned char)i;
        cr_assert_eq(quire_kv_namespace_open(kv, key, sizeof key, &id), QUIRE_OK, "key %d", i);
        rig_run(kv, id, tokens, 32, 32);
        quire_kv_namespace_close(kv, id);
    }
    for (int i = 1; i < 8; i++) {
        key[0] = (unsigned char)(100 + i);
        cr_assert_eq(quire_kv_namespace_open(kv, key, sizeof key, &held[i]), QUIRE_OK, "all at once: %d", i);
    }
    cr_assert_eq(quire_kv_namespace_open(kv, "x", 1, &id), QUIRE_NO_MEMORY, "all are held");
    rig_destroy(kv);
}
