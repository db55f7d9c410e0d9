#include "runtime/server/live_table.h"

#include <criterion/criterion.h>

Test(server_live_table, ids_of_the_past_find_nothing) {
    qr_live_table table = {0};
    int owners[300];
    uint64_t ids[300], old;
    uint32_t part;
    for (uint32_t i = 0; i < 300; i++) cr_assert(qr_live_insert(&table, &owners[i], i, &ids[i]));
    for (uint32_t i = 0; i < 300; i++) {
        cr_assert_eq(qr_live_find(&table, ids[i], &part), &owners[i]);
        cr_assert_eq(part, i);
    }
    old = ids[7];
    qr_live_remove(&table, old);
    cr_assert_null(qr_live_find(&table, old, &part));
    cr_assert(qr_live_insert(&table, &owners[0], 1, &ids[7]));
    cr_assert_eq((uint32_t)ids[7], (uint32_t)old, "the slot is used again");
    cr_assert_neq(ids[7], old);
    cr_assert_null(qr_live_find(&table, old, &part));
    cr_assert_null(qr_live_find(&table, 0, &part));
    cr_assert_null(qr_live_find(&table, UINT64_MAX, &part));
    qr_live_table_deinit(&table);
}
