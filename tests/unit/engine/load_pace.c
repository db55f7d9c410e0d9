#include "runtime/engine/load_pace.h"

#include <criterion/criterion.h>

enum { WEIGHT = 16, EXPECTED_US = 100, BEGUN_US = 5000 };

static qr_load_pace begun(uint32_t arrived) {
    qr_load_pace pace;
    qr_load_pace_begin(&pace, EXPECTED_US, WEIGHT, arrived, BEGUN_US);
    return pace;
}

Test(engine_load_pace, what_keeps_its_word_stays_as_expected) {
    qr_load_pace pace = begun(0);
    for (uint32_t blocks = 0; blocks < 1000; blocks += 7)
        cr_assert_float_eq(qr_load_pace_block_us(&pace, blocks, BEGUN_US + blocks * EXPECTED_US), EXPECTED_US, 1e-9);
}

Test(engine_load_pace, a_gust_or_a_pause_says_little_and_many_say_all) {
    qr_load_pace pace = begun(0);
    double gust = qr_load_pace_block_us(&pace, 4, BEGUN_US), pause = qr_load_pace_block_us(&pace, 0, BEGUN_US + 400);
    cr_assert(gust > 0.7 * EXPECTED_US && gust < EXPECTED_US);
    cr_assert(pause < 1.3 * EXPECTED_US && pause > EXPECTED_US);
    double slow = qr_load_pace_block_us(&pace, 100, BEGUN_US + UINT64_C(100) * 20 * EXPECTED_US);
    cr_assert(slow > 15 * EXPECTED_US && slow < 20 * EXPECTED_US);
}

Test(engine_load_pace, silence_gets_slower_until_the_time_that_was_foretold) {
    qr_load_pace pace = begun(3);
    for (uint32_t arrived = 3; arrived < 40; arrived += 9) {
        for (double limit_us = EXPECTED_US; limit_us < 1e6; limit_us *= 3) {
            uint64_t when_us = qr_load_pace_when_us(&pace, arrived, limit_us);
            cr_assert_geq(qr_load_pace_block_us(&pace, arrived, when_us), limit_us * (1 - 1e-9));
            if (when_us > BEGUN_US) cr_assert_lt(qr_load_pace_block_us(&pace, arrived, when_us - 1), limit_us);
        }
    }
}

Test(engine_load_pace, blocks_that_were_lost_again_count_for_nothing) {
    qr_load_pace pace = begun(30);
    cr_assert_float_eq(qr_load_pace_block_us(&pace, 2, BEGUN_US), EXPECTED_US, 1e-9);
    cr_assert_float_eq(qr_load_pace_block_us(&pace, 30, BEGUN_US - 1000), EXPECTED_US, 1e-9);
    cr_assert_lt(qr_load_pace_when_us(&pace, 2, 1e300), UINT64_MAX);
}

/* Only what came since it began counts, beside what was expected. */
Test(engine_load_pace, what_was_there_before_it_began_is_not_counted) {
    qr_load_pace pace = begun(30);
    cr_assert_float_eq(qr_load_pace_block_us(&pace, 46, BEGUN_US), EXPECTED_US / 2.0, 1e-9);
    cr_assert_float_eq(qr_load_pace_block_us(&pace, 46, BEGUN_US + 16 * EXPECTED_US), EXPECTED_US, 1e-9);
}

/* It takes that long already; or so long that nobody waits for it. The time is whole, and not before it is true. */
Test(engine_load_pace, foretells_no_past_and_no_more_than_an_hour) {
    qr_load_pace pace = begun(0);
    cr_assert_eq(qr_load_pace_when_us(&pace, 0, EXPECTED_US / 2.0), BEGUN_US);
    cr_assert_eq(qr_load_pace_when_us(&pace, 0, 1e300), BEGUN_US + UINT64_C(3600) * 1000000);
    cr_assert_eq(qr_load_pace_when_us(&pace, 0, EXPECTED_US + 1.01 / WEIGHT), BEGUN_US + 2);
}
