/* bench.h - `quire bench`: drives one or two OpenAI-compatible endpoints with multi-turn sessions and prints what a client
 * sees. With two, their rounds are interleaved in one run, so that a noisy machine hurts both alike. */
#ifndef QR_CLI_BENCH_H
#define QR_CLI_BENCH_H

int qr_command_bench(int argc, char **argv);
#endif
