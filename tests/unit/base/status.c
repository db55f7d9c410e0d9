#include <criterion/criterion.h>
#include <string.h>

#include <quire/status.h>

Test(base_status, every_status_has_a_name_and_a_message) {
    for (int s = 0; s < QUIRE_STATUS_COUNT; s++) {
        cr_assert_gt(strlen(quire_status_name((quire_status)s)), 1);
        cr_assert_gt(strlen(quire_status_message((quire_status)s)), 1);
        cr_assert_str_neq(quire_status_name((quire_status)s), "UNKNOWN");
    }
    cr_assert_str_eq(quire_status_name(QUIRE_NO_BLOCKS), "NO_BLOCKS");
    cr_assert_str_eq(quire_status_message(QUIRE_QUEUE_FULL), "queue is full");
}

Test(base_status, an_unknown_number_is_named_as_such) {
    cr_assert_str_eq(quire_status_name((quire_status)9999), "UNKNOWN");
    cr_assert_str_eq(quire_status_message((quire_status)-1), "unknown status");
}
