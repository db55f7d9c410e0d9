#include "runtime/cli/bench_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

static const char *const WORDS[] = {"time",   "year",  "people", "way",   "day",     "man",    "thing",   "woman",    "life",
                                    "child",  "world", "school", "state", "family",  "group",  "country", "problem",  "hand",
                                    "part",   "place", "case",   "week",  "company", "system", "program", "question", "work",
                                    "number", "night", "point",  "home",  "water",   "room",   "mother",  "area",     "money",
                                    "story",  "fact",  "month",  "book",  "eye",     "job",    "word",    "business", "issue",
                                    "side",   "kind",  "head",   "house", "service", "friend", "father"};
enum { WORD_COUNT = sizeof WORDS / sizeof *WORDS, WORD_BYTES_MAX = 10, SENTENCE_WORDS = 12 };

char *qr_bench_text(const char *opening, uint32_t words, uint64_t seed) {
    size_t opening_size = strlen(opening);
    char *text = malloc(opening_size + (size_t)words * (WORD_BYTES_MAX + 2) + 1), *at = text;
    if (!text) return NULL;
    qr_random random = {seed};
    memcpy(at, opening, opening_size);
    at += opening_size;
    for (uint32_t i = 0; i < words; i++) {
        const char *word = WORDS[qr_random_below(&random, WORD_COUNT)];
        size_t size = strlen(word);
        *at++ = ' ';
        memcpy(at, word, size);
        at += size;
        if (i % SENTENCE_WORDS == SENTENCE_WORDS - 1) *at++ = '.';
    }
    *at = '\0';
    return text;
}
