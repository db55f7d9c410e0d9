#include "tests/support/faults.h"

#include <criterion/criterion.h>
#include <string.h>

Test(faults_faults, every_kind_of_value_is_read) {
    faults f;
    cr_assert_eq(faults_parse("slow=20M,flip_read=0.001,eio_write=5,nospace=64K,seed=3,full,reorder=1,copy_delay=7,"
                              "alloc_fail=9,delay=150,device_bytes=1G,host_tier",
                              &f, NULL),
                 QUIRE_OK);
    cr_assert(f.slow_bytes_per_second == 20u << 20 && f.nospace_bytes == 64u << 10 && f.seed == 3 && f.full);
    cr_assert(f.flip_read.rate == 0.001 && f.flip_read.nth == 0 && f.eio_write.nth == 5 && f.eio_write.rate == 0);
    cr_assert(f.device.reorder && f.device.delay_polls_max == 7 && f.device.seed == 3 && f.device.memory_bytes == 1u << 30);
    cr_assert(f.alloc.nth == 9 && f.delay_us == 150 && f.host_tier);
    cr_assert(faults_want_device(&f));
}

Test(faults_faults, no_text_is_no_faults) {
    faults f, none = {.seed = 1, .device = {.seed = 1}};
    cr_assert_eq(faults_parse("", &f, NULL), QUIRE_OK);
    cr_assert_eq(memcmp(&f, &none, sizeof f), 0);
    cr_assert(!faults_want_device(&f));
}

Test(faults_faults, what_is_wrong_is_said) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"slow", "slow takes a size"},
        {"slow=", "slow takes a size"},
        {"slow=20X", "slow takes a size"},
        {"slow=20000000000G", "slow takes a size"},
        {"slow=-1", "slow takes a size"},
        {"seed=1,flip=0.5", "no fault 'flip'"},
        {"seed=1,,full", "no fault ''"},
        {"flip_read=1.5", "'flip_read=1.5': flip_read takes the number"},
        {"flip_read=0", "takes the number of the call, from 1"},
        {"flip_read=.", "takes the number of the call, from 1"},
        {"flip_read=0.5x", "takes the number of the call, from 1"},
        {"full=2", "full takes no value, or 0 or 1"},
        {"copy_delay=4294967295", "takes a whole number"},
        {"seed=99999999999999999999", "takes a whole number"},
        {"seed=3 ", "takes a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        faults f, zero = {0};
        quire_error error;
        cr_assert_eq(faults_parse(cases[i].text, &f, &error), QUIRE_INVALID, "%s", cases[i].text);
        cr_assert_not_null(strstr(error.text, cases[i].part), "%s: %s", cases[i].text, error.text);
        cr_assert_eq(memcmp(&f, &zero, sizeof f), 0);
    }
}
