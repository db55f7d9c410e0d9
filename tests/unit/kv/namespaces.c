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
    rig_destroy(kv);
}

Test(kv_namespaces, a_place_is_reused_only_when_nothing_is_in_it) {
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
    cr_assert_eq(quire_kv_namespace_open(kv, "new", 3, &id), QUIRE_NO_MEMORY);
    cr_assert_eq(quire_kv_evict(kv, 2), 2);
    cr_assert_eq(quire_kv_namespace_open(kv, "new", 3, &id), QUIRE_OK);
    cr_assert_eq(id, cached, "it took the place of what held nothing any more");
    cr_assert_eq(rig_match(kv, id, tokens, 32).miss, QUIRE_KV_MISS_NEVER_STORED, "and nothing of its past");
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_namespace_open(kv, "newer", 5, &id), QUIRE_OK);
    cr_assert_eq(id, used);
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
