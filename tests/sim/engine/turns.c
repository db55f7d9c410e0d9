/* How soon a later turn of a chat is answered: what is cached costs nothing, so its first token is due after its own new words,
 * whoever else is there. Under the virtual clock the rule that docs/PERF.md measures by hand is exact. */
#include "world.h"

#include <criterion/criterion.h>
#include <string.h>

enum { TURNS = 6, SYSTEM = 1100, WORDS = 66, ANSWER = 24, CONTEXT = 2048, OTHERS = 6, LONG = 1900 };

typedef struct chat {
    quire_token tokens[CONTEXT];
    uint32_t count;
} chat;

typedef struct turn {
    uint32_t prompt, uncached;
    uint64_t first_us, first_steps; /* from its arrival to its first token */
} turn;

static void say(chat *c, uint64_t seed, uint32_t count) {
    world_prompt(seed, c->tokens + c->count, count);
    c->count += count;
}

static void ask(world *w, uint64_t id, const quire_token *prompt, uint32_t count, uint32_t answer) {
    quire_request r = world_request(id, prompt, count, answer);
    r.ignore_eos = true;
    cr_assert_eq(world_add(w, &r), QUIRE_OK);
}

/* The chat's next words, and what it is answered. */
static turn take_turn(world *w, chat *c, uint64_t id) {
    const world_record *record = &w->records[id];
    say(c, id + 1, WORDS);
    turn t = {.prompt = c->count};
    uint64_t steps = w->steps;
    ask(w, id, c->tokens, c->count, ANSWER);
    while (record->first_token_us == 0) cr_assert(world_step(w));
    t.first_steps = w->steps - steps;
    t.first_us = record->first_token_us - record->added_us;
    t.uncached = c->count - record->match.token_count;
    while (!record->done) cr_assert(world_step(w));
    memcpy(c->tokens + c->count, record->choices[0].tokens, ANSWER * sizeof(quire_token));
    c->count += ANSWER;
    return t;
}

static world *open_house(uint32_t steps_in_flight) {
    world_options o = world_defaults();
    o.context_tokens = CONTEXT;
    o.block_count = 1024;
    o.max_sequences = 16;
    o.step_us = 50000;
    o.rows_max = 512;
    o.unchecked = true;
    o.steps_in_flight = steps_in_flight;
    return world_create(&o, 2 * TURNS + OTHERS);
}

/* Its words, and the end of the last answer that filled no block. */
static void expect_only_new_words(const world *w, const turn *t, int number) {
    cr_expect(t->uncached >= WORDS && t->uncached <= WORDS + w->options.block_tokens, "turn %d computes %u tokens", number,
              t->uncached);
}

Test(sim_turns, the_first_token_of_a_later_turn_costs_its_new_words) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        static chat c;
        c.count = 0;
        world *w = open_house(flight);
        say(&c, 99, SYSTEM);
        turn cold = take_turn(w, &c, 0);
        cr_assert(cold.uncached == cold.prompt && cold.first_steps > 1);
        double row_us = (double)cold.first_us / cold.prompt;
        for (int i = 1; i < TURNS; i++) {
            turn t = take_turn(w, &c, (uint64_t)i);
            expect_only_new_words(w, &t, i);
            cr_expect_eq(t.first_steps, 1, "turn %d", i);
            cr_expect_leq(t.first_us, 1.3 * t.uncached * row_us + 20000, "turn %d: %llu us", i, (unsigned long long)t.first_us);
        }
        world_drain(w, 1000);
        world_destroy(w);
    }
}

/* Others decode, and before each turn a long prompt has come: the step after those that run already brings the first token. */
Test(sim_turns, company_delays_a_later_turn_by_no_step) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        static chat c;
        static quire_token other[OTHERS][20], longs[TURNS][LONG];
        c.count = 0;
        world *w = open_house(flight);
        for (uint64_t i = 0; i < OTHERS; i++) {
            world_prompt(200 + i, other[i], 20);
            ask(w, 2 * TURNS + i, other[i], 20, WORLD_ANSWER_MAX);
        }
        say(&c, 99, SYSTEM);
        (void)take_turn(w, &c, 0);
        for (uint64_t i = 1; i < TURNS; i++) {
            world_prompt(300 + i, longs[i], LONG);
            ask(w, TURNS + i, longs[i], LONG, 1);
            cr_assert(world_step(w));
            turn t = take_turn(w, &c, i);
            expect_only_new_words(w, &t, (int)i);
            cr_expect_leq(t.first_steps, flight, "turn %d: %llu steps, %llu us", (int)i, (unsigned long long)t.first_steps,
                          (unsigned long long)t.first_us);
        }
        world_drain(w, 1000);
        world_destroy(w);
    }
}

/* First token of a long prompt, in steps, with a crowd that comes behind it and is short beside it, though not by itself. */
static uint64_t long_steps(uint32_t flight, int32_t crowd_priority, uint32_t crowd) {
    enum { SHORT = 70 };
    static quire_token one[LONG], others[OTHERS][SHORT];
    world *w = open_house(flight);
    cr_assert_gt(SHORT, 4 * w->options.block_tokens);
    world_prompt(400, one, LONG);
    ask(w, 0, one, LONG, 1);
    cr_assert(world_step(w));
    for (uint64_t i = 1; i <= crowd; i++) {
        world_prompt(400 + i, others[i - 1], SHORT);
        quire_request r = world_request(i, others[i - 1], SHORT, 1);
        r.priority = crowd_priority;
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
    }
    while (w->records[0].first_token_us == 0) cr_assert(world_step(w));
    uint64_t steps = w->steps;
    world_drain(w, 1000);
    world_destroy(w);
    return steps;
}

Test(sim_turns, the_less_urgent_does_not_pass_for_being_short_beside_the_urgent) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        uint64_t alone = long_steps(flight, 0, 0);
        cr_expect_eq(long_steps(flight, 1, OTHERS), alone, "%u in flight", flight);
        cr_expect_gt(long_steps(flight, 0, OTHERS), alone, "%u in flight: its equals do pass", flight);
    }
}
