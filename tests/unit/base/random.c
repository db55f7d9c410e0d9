#include "base/random.h"

#include <criterion/criterion.h>

#include "base/hash.h"

Test(base_random, a_seed_replays_and_bounds_hold) {
    qr_random a = {42}, b = {42};
    int seen[10] = {0};
    for (int i = 0; i < 100000; i++) {
        cr_assert_eq(qr_random_u64(&a), qr_random_u64(&b));
        seen[qr_random_below(&a, 10)]++;
        (void)qr_random_below(&b, 10);
        double unit = qr_random_unit(&a);
        cr_assert(unit >= 0 && unit < 1);
        (void)qr_random_unit(&b);
    }
    for (int i = 0; i < 10; i++) cr_assert(seen[i] > 9500 && seen[i] < 10500); /* 5 sigma is 474 */
    qr_random zero = {0};
    cr_assert_eq(qr_random_u64(&zero), qr_mix64(0));
    cr_assert_eq(qr_random_below(&zero, 1), 0);
}
